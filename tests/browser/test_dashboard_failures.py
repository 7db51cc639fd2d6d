"""From a new queue to a redriven message, as a person does it in a browser; and hostile names on every page."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

import ackwise
from tests.browser.views import View, opened_view
from tests.dashboard.hostile import HOSTILE, LONG_LINE
from tests.dashboard.letters import kill
from tests.patience import PATIENCE
from tests.server.running import Running

pytestmark = pytest.mark.slow


@pytest.fixture
def view(chrome: Browser, server: Running) -> Iterator[View]:
    expect.set_options(timeout=PATIENCE * 1000)
    with opened_view(chrome, f"{server.url}/dashboard") as opened:
        yield opened


@pytest.fixture
def queue(server: Running) -> Iterator[ackwise.Connection]:
    with ackwise.connect(server.url) as connection:
        yield connection


def push(view: View, payload: str) -> Page:
    page = view.open("/messages/push?queue=orders")
    page.get_by_label("Payload", exact=True).fill(payload)
    page.get_by_role("button", name="Push").click()
    expect(page.get_by_text("Message stored.")).to_be_visible()
    return page


def test_queue_is_created_filled_and_its_lease_watched(view: View, queue: ackwise.Connection) -> None:
    page = view.open("/new-queue")
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_role("button", name="Create queue").click()
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    page = push(view, '{"id": 1, "customer": "Ann"}')
    expect(page.locator("#payload")).to_contain_text('"customer": "Ann"')

    view.open("/messages?queue=orders")
    expect(page.locator("tbody tr")).to_have_count(1)
    view.open("/queues/orders")
    expect(page.get_by_text("No consumer holds a message of this queue.")).to_be_visible()
    expect(page.locator("[data-live-state]")).to_have_text("Live")
    queue.claim("orders", group="billing", owner="worker-17", lease=8)
    expect(page.get_by_text("worker-17")).to_be_visible()
    expect(page.get_by_text("No consumer holds a message of this queue.")).to_be_visible()
    assert view.problems == []


def test_one_kind_of_error_is_redriven_and_consumed(view: View, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    kill(queue, "orders", "billing", "order 1 not found", "order 22 not found", "timeout after 3 s")
    page = view.open("/dead-letters")
    kinds = page.locator("table").first.locator("tbody tr")
    expect(kinds).to_have_count(2)
    row = kinds.filter(has_text="order <n> not found")
    expect(row.locator("td.number").first).to_have_text("2")

    row.get_by_role("link", name="order <n> not found").click()
    expect(page.get_by_role("heading", name="2 dead letters")).to_be_visible()
    page.get_by_role("link", name="Redrive all 2").click()
    expect(page.get_by_role("heading", name="Redrive 2 dead letters")).to_be_visible()
    page.get_by_role("button", name="Redrive 2 dead letters").click()
    expect(page.get_by_text("finished")).to_be_visible()
    expect(page.get_by_text("2 of 2")).to_be_visible()
    page.reload()
    expect(page.get_by_text("2 of 2")).to_be_visible()

    view.open("/dead-letters")
    expect(page.get_by_role("heading", name="1 dead letter", exact=True)).to_be_visible()
    batch = queue.claim("orders", group="billing", max=10)
    assert len(batch) == 2
    batch.ack()
    view.open("/groups/orders/billing")
    expect(page.get_by_text("caught up")).to_be_visible()
    assert view.problems == []


def test_selected_letters_are_purged_after_a_confirmation(view: View, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "billing", "bad 1", "bad 2", "bad 3")
    page = view.open("/dead-letters")
    boxes = page.get_by_role("checkbox", name="Select ")
    page.get_by_role("checkbox", name="Select all letters of this page").check()
    expect(boxes.nth(3)).to_be_checked()
    boxes.nth(3).uncheck()
    page.locator("form").get_by_role("button", name="Purge").click()
    page.get_by_role("button", name="Purge 2 dead letters").click()
    expect(page.get_by_text("finished")).to_be_visible()
    assert queue.dead_letters().total == 1
    assert view.problems == []


def test_group_is_moved_after_its_preview(view: View, queue: ackwise.Connection) -> None:
    for number in range(5):
        queue.push("orders", number)
    queue.claim("orders", group="billing", max=5).ack()
    page = view.open("/groups/orders/billing")
    page.get_by_role("link", name="Seek").click()
    page.get_by_label("Move to").select_option("start")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview")).to_contain_text("5 messages that the group had finished")
    page.get_by_role("button", name="Move the group: 5 again, 0 skipped").click()
    expect(page.get_by_text("moved to the start of every partition")).to_be_visible()
    assert len(queue.claim("orders", group="billing", max=10)) == 5
    assert view.problems == []


def test_hostile_names_and_errors_show_as_text(view: View, queue: ackwise.Connection) -> None:
    kill(queue, HOSTILE, HOSTILE, HOSTILE, LONG_LINE, partition=HOSTILE, payload=HOSTILE)
    queue.push(HOSTILE, HOSTILE, partition=HOSTILE, transaction_id=HOSTILE, headers={"trace": HOSTILE})
    queue.claim(HOSTILE, group=HOSTILE, owner=HOSTILE, lease=3600)
    letter = queue.dead_letters()[0]
    name = quote(HOSTILE, safe="~")
    paths = [
        "/messages?" + urlencode({"queue": HOSTILE}), f"/messages/{letter.partition_id}/{name}",
        f"/messages/push?queue={name}", "/dead-letters", f"/dead-letters/{letter.id}",
        "/dead-letters/actions/purge?" + urlencode({"queue": HOSTILE, "group": HOSTILE}), "/groups",
        f"/groups/{name}/{name}", f"/groups/{name}/{name}/seek?to=start", f"/groups/{name}/{name}/delete", "/consumers",
    ]  # fmt: skip
    view.page.on("dialog", lambda dialog: view.problems.append(f"a script of a name runs: {dialog.message}"))
    for path in paths:
        view.open(path)
        assert view.page.locator("main img, main script").count() == 0, path
        assert (
            view.page.get_by_text("<img src=x onerror=alert(1)>").count()
            + view.page.locator("input[value*='<img src=x']").count()
            >= 1
        ), path
    assert view.problems == []


@pytest.mark.parametrize(
    "path",
    ["/messages?queue=orders", "/messages/push?queue=orders", "/messages/{message}", "/dead-letters",
     "/dead-letters/{letter}", "/groups", "/groups/orders/billing", "/groups/orders/billing/seek?to=start",
     "/consumers"],
)  # fmt: skip
def test_page_fits_every_width_and_both_themes(view: View, queue: ackwise.Connection, path: str) -> None:
    kill(queue, "orders", "billing", HOSTILE, LONG_LINE, "timeout after 3 s", partition="p" * 255)
    queue.push("orders", {"long": "x" * 2000}, transaction_id="t" * 512)
    queue.claim("orders", group="billing", owner="w" * 255, lease=3600)
    letter = queue.dead_letters()[0]
    view.check_everywhere(path.format(message=f"{letter.partition_id}/{letter.transaction_id}", letter=letter.id))
