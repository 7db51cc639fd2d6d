"""The dashboard in Chromium: themes, widths, keys, dialogs, and live blocks that wait for the user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

import ackwise
from tests.browser.views import View, opened_view
from tests.patience import PATIENCE
from tests.server.running import Running

pytestmark = pytest.mark.slow
NASTY = '"><img src=x onerror=alert(1)> \u202eright\u202c/to ' + "long" * 40


@pytest.fixture
def queue(server: Running) -> Iterator[ackwise.Connection]:
    with ackwise.connect(server.url) as connection:
        yield connection


@pytest.fixture
def view(chrome: Browser, server: Running) -> Iterator[View]:
    expect.set_options(timeout=PATIENCE * 1000)  # a busy machine is slow
    with opened_view(chrome, server.url) as made:
        yield made


@pytest.fixture
def filled(queue: ackwise.Connection) -> ackwise.Connection:
    """Queues with leases, dead letters and hostile names."""
    queue.push_many("orders", range(300), partition="north")
    queue.claim("orders", group="billing", max=4, owner=NASTY, lease=3600)
    queue.claim("orders", group="mail", max=2).reject(NASTY)
    queue.create_queue(NASTY, namespace="shop", task="mail")
    queue.pause_queue(NASTY)
    queue.push(NASTY, {"a": 1}, partition=NASTY)
    return queue


PAGES = ("/", "/dashboard/queues", "/dashboard/queues/orders", "/dashboard/queues/orders/edit", "/dashboard/new-queue")
OTHERS = ("/dashboard/queues/orders/delete", "/dashboard/settings", "/dashboard/queues/nowhere-to-be-found")


@pytest.mark.usefixtures("filled")
def test_pages_fit_every_width_in_both_themes(view: View) -> None:
    for path in PAGES:
        view.check_everywhere(path)


@pytest.mark.usefixtures("filled")
def test_other_pages_fit_every_width_in_both_themes(view: View) -> None:
    for path in OTHERS[:-1]:
        view.check_everywhere(path)
    view.open(OTHERS[-1])
    expect(view.page.get_by_role("alert")).to_contain_text("nowhere-to-be-found")
    view.check_axe()


def test_empty_store_fits_every_width(view: View) -> None:
    for path in ("/", "/dashboard/queues"):
        view.check_everywhere(path)
        expect(view.page.locator(".command").first).to_contain_text("ackwise message push orders")


@pytest.mark.usefixtures("filled")
def test_hostile_names_are_text_and_lead_to_their_page(view: View) -> None:
    page = view.open("/dashboard/queues?namespace=shop")
    page.locator("tbody th a").click()
    expect(page.locator("h1")).to_have_text(NASTY)
    assert page.locator("img").count() == 0
    for width in (1440, 380):
        view.set_width(width)
        view.check_layout()


def test_page_shows_a_new_lease_by_itself(view: View, queue: ackwise.Connection) -> None:
    queue.push_many("orders", range(3))
    page = view.open("/dashboard/queues/orders")
    expect(page.locator("#details")).to_contain_text("No consumer holds a message")
    expect(page.locator("[data-live-state]")).to_have_text("Live")
    batch = queue.claim("orders", max=2, owner="worker-7")
    expect(page.locator("#details")).to_contain_text("worker-7")
    expect(page.locator("#numbers .tile").nth(1)).to_contain_text("2")
    batch.ack()
    expect(page.locator("#details")).to_contain_text("No consumer holds a message")
    view.check_layout()


def test_updates_pause_while_text_is_selected(view: View, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    page = view.open("/dashboard/queues/orders")
    state, stored = page.locator("[data-live-state]"), page.locator("#numbers .tile").nth(5)
    expect(state).to_have_text("Live")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#numbers'))")
    queue.push_many("orders", range(6))
    expect(state).to_have_text("Paused")
    expect(stored).to_contain_text("1")
    page.evaluate("getSelection().removeAllRanges()")
    expect(stored).to_contain_text("7")
    expect(state).to_have_text("Live")


def test_updates_pause_while_a_field_has_the_focus(view: View, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    page = view.open("/dashboard/queues")
    expect(page.locator("[data-live-state]")).to_have_text("Live")
    page.keyboard.press("/")
    field = page.get_by_label("Name begins with")
    expect(field).to_be_focused()
    page.keyboard.type("or")
    queue.push_many("orders", range(6))
    expect(page.locator("[data-live-state]")).to_have_text("Paused")
    available = page.locator("tbody td").first
    expect(available).to_have_text("1")
    field.blur()
    expect(available).to_have_text("7")
    expect(field).to_have_value("or")


def test_hidden_page_has_no_connection(view: View, server: Running, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    page = view.open("/dashboard/queues/orders")
    expect(page.locator("[data-live-state]")).to_have_text("Live")
    live = server.server.runtime.dashboard.live
    assert live.count == 1
    hide = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
    page.evaluate(hide + " document.dispatchEvent(new Event('visibilitychange')) }", True)
    while live.count:
        page.wait_for_timeout(5)
    queue.push("orders", 2)
    page.evaluate(hide + " document.dispatchEvent(new Event('visibilitychange')) }", False)
    expect(page.locator("#numbers .tile").nth(5)).to_contain_text("2")
    assert server.server.runtime.dashboard.live.count == 1


def test_keys_open_help_and_refresh(view: View, queue: ackwise.Connection) -> None:
    page = view.open("/dashboard/queues")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    view.check_axe()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    with page.expect_request("**/dashboard/queues"):
        page.keyboard.press("r")


def test_theme_button_wins_over_the_system(view: View) -> None:
    page = view.open("/dashboard/settings")
    ground = "getComputedStyle(document.body.parentElement).backgroundColor"
    light = page.evaluate(ground)
    button = page.locator("[data-theme-button]")
    button.click()
    button.click()
    expect(button).to_have_text("Theme: dark")
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert page.evaluate(ground) == dark
    button.click()
    expect(button).to_have_text("Theme: system")
    assert page.evaluate(ground) == light


def test_queue_is_created_changed_and_deleted_with_the_mouse(view: View, queue: ackwise.Connection) -> None:
    page = view.open("/dashboard/queues")
    page.get_by_role("link", name="Create queue").click()
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_label("Lease", exact=True).fill("soon")
    page.get_by_role("button", name="Create queue").click()
    expect(page.get_by_role("alert")).to_contain_text("was not created")
    expect(page.get_by_label("Name", exact=True)).to_have_value("orders")
    assert len(view.problems) == 1
    view.problems.clear()  # Chromium reports an answer of 400 as an error
    page.get_by_label("Lease", exact=True).fill("45s")
    page.get_by_role("button", name="Create queue").click()
    expect(page.locator(".notice")).to_have_text("Created the queue orders.")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".heading .badge")).to_have_text("paused")
    page.get_by_role("link", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("0 stored messages")
    view.check_axe()
    dialog.get_by_role("link", name="Cancel").click()
    expect(dialog).to_have_count(0)
    page.get_by_role("link", name="Delete").click()
    dialog.get_by_label("Type orders to confirm").fill("orders")
    dialog.get_by_role("button", name="Delete queue").click()
    expect(page.locator(".notice")).to_have_text("Deleted the queue orders.")
    assert queue.queues() == []
    view.check_layout()


def test_changes_work_without_a_script(chrome: Browser, server: Running, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    batch = queue.claim("orders", owner="worker-1")
    context = chrome.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{server.url}/dashboard/queues/orders")
    page.get_by_role("link", name="Release").click()
    expect(page.locator("h1")).to_contain_text(f"Release the lease {batch.lease_id}?")
    page.get_by_role("button", name="Release lease").click()
    expect(page.locator(".notice")).to_contain_text("Released 1 message")
    page.get_by_role("link", name="Delete").click()
    page.locator("#typed").fill("orders")
    page.get_by_role("button", name="Delete queue").click()
    expect(page.locator(".notice")).to_contain_text("Deleted the queue orders.")
    context.close()
