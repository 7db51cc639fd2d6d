"""The list of messages with its filters, and the page of one message."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest

import ackwise
from ackwise.core.policy import Backoff
from ackwise.core.queries import ListGroups
from tests.dashboard.hostile import HOSTILE
from tests.dashboard.letters import kill
from tests.dashboard.site import Shown, Site
from tests.server.running import Running


def fill(queue: ackwise.Connection, count: int = 4) -> None:
    """Messages 0, 1, … of `orders` in two partitions. Group `billing` acked 0, holds 1, and 2 waits for a retry."""
    for number in range(count):
        queue.push(
            "orders", {"id": number, "customer": {"name": f"Ann {number}"}}, partition=f"p{number % 2}",
            transaction_id=f"tx-{number}", headers={"trace": f"t{number}"},
        )  # fmt: skip


def listed(shown: Shown) -> list[str]:
    """Transaction ids in the list."""
    return [part.split("<")[0] for part in shown.source.split('<th scope="row" class="id">')[1:] for part in
            [part.split("<code>")[1]]]  # fmt: skip


def messages(site: Site, **filters: str) -> list[str]:
    shown = site.get("/messages?" + urlencode({"queue": "orders", **filters}))
    assert shown.status == 200, shown.text
    return listed(shown)


def test_messages_without_a_queue_offer_the_queues(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders")
    shown = site.get("/messages?state=ready")
    assert "Choose a queue" in shown.text
    assert "state=ready&amp;queue=orders" in shown.source


def test_messages_of_an_empty_store_say_what_to_do(site: Site) -> None:
    assert "ackwise message push orders" in site.get("/messages").text


def test_messages_are_listed_newest_first_with_a_preview(site: Site, queue: ackwise.Connection) -> None:
    fill(queue)
    shown = site.get("/messages?queue=orders")
    assert listed(shown) == ["tx-3", "tx-2", "tx-1", "tx-0"]
    assert "Ann 3" in shown.text


FILTERS: list[tuple[dict[str, str], list[str]]] = [
    ({"partition": "p1"}, ["tx-3", "tx-1"]),
    ({"transaction": "x-2"}, ["tx-2"]),
    ({"header": "trace=t1"}, ["tx-1"]),
    ({"filter": "/id > 1"}, ["tx-3", "tx-2"]),
    ({"filter": "/customer/name = 'Ann 0'"}, ["tx-0"]),
    ({"since": "1h"}, ["tx-3", "tx-2", "tx-1", "tx-0"]),
    ({"until": "1h"}, []),
    ({"state": "scheduled"}, ["later"]),
    ({"state": "acked", "group": "billing"}, ["tx-0"]),
    ({"state": "leased"}, ["tx-1"]),
    ({"state": "ready", "group": "billing"}, ["tx-3", "tx-2"]),
    ({"state": "ready", "partition": "p1", "since": "1h", "header": "trace=t3"}, ["tx-3"]),
]


def test_filters_of_messages_select(site: Site, queue: ackwise.Connection) -> None:
    fill(queue)
    queue.push("orders", 1, transaction_id="later", delay=3600)
    queue.claim("orders", group="billing", partitions=["p0"], max=1).ack()
    queue.claim("orders", group="billing", partitions=["p1"], max=1, lease=3600)
    for filters, ids in FILTERS:
        assert messages(site, **filters) == ids, filters


WRONG = [
    ({"queue": "nope"}, "nope"),
    ({"group": "nope"}, "nope"),
    ({"partition": "nope"}, "nope"),
    ({"state": "lost"}, "state"),
    ({"since": "soon"}, "not a time"),
    ({"header": "trace"}, "name=value"),
    ({"filter": "/id >"}, ""),
    ({"filter": "x" * 4097}, "4096"),
    ({"transaction": "x" * 513}, "transaction_id"),
    ({"after": "!!"}, "place"),
]


def test_wrong_filter_of_messages_keeps_the_form(site: Site, queue: ackwise.Connection) -> None:
    fill(queue, 1)
    for filters, told in WRONG:
        shown = site.get("/messages?" + urlencode({"queue": "orders", "header": "kept=1", **filters}))
        assert shown.status in (400, 404), filters
        assert told in shown.text, filters
        assert "header" in filters or shown.values("header") == ["kept=1"], filters


def test_list_of_messages_has_pages(site: Site, queue: ackwise.Connection) -> None:
    fill(queue, 51)
    first = site.get("/messages?queue=orders")
    assert len(listed(first)) == 50
    following = first.source.split('rel="next" href="')[1].split('"')[0].removeprefix("/dashboard")
    assert listed(site.get(following.replace("&amp;", "&"))) == ["tx-0"]


def test_each_row_shows_the_states_of_the_groups(site: Site, queue: ackwise.Connection) -> None:
    fill(queue, 1)
    queue.claim("orders", group="billing", max=1).ack()
    queue.claim("orders", group="mail", max=1, lease=3600)
    shown = site.get("/messages?queue=orders")
    assert shown.source.index("acked") != shown.source.index("leased")
    assert "mail billing" in shown.text
    assert "leased acked" in shown.text


def test_reading_pages_of_messages_changes_no_state(site: Site, queue: ackwise.Connection) -> None:
    fill(queue)
    queue.claim("orders", group="billing", max=2, lease=3600)
    before = queue.transport.ask(ListGroups(queue="orders"))
    for path in (
        "/messages?queue=orders",
        "/messages?queue=orders&state=ready",
        "/messages?queue=orders&group=billing",
    ):
        site.get(path)
    (message,) = queue.browse("orders", limit=1)
    site.get(f"/messages/{message.partition_id}/{message.transaction_id}")
    site.get(f"/messages/{message.partition_id}/{message.transaction_id}/payload")
    after = queue.transport.ask(ListGroups(queue="orders"))
    assert [(row.lag, row.held, row.leases) for row in after] == [(row.lag, row.held, row.leases) for row in before]


def test_message_page_shows_holder_and_timeline(site: Site, queue: ackwise.Connection) -> None:
    queue.create_queue("orders", retry_limit=5, backoff=Backoff())
    queue.push("orders", {"id": 1}, transaction_id="tx", headers={"trace": HOSTILE})
    for delivery in queue.claim("orders", group="billing", owner="worker-1"):
        delivery.retry(error=ValueError("first trouble"))
    queue.claim("orders", group="billing", owner="worker-2", lease=3600)
    (message,) = queue.browse("orders")
    shown = site.get(f"/messages/{message.partition_id}/tx")
    text = shown.text
    assert "leased" in text
    assert "Held by worker-2" in text
    assert "retry" in text
    assert "by worker-1" in text
    assert "ValueError" in text
    assert "first trouble" in text
    assert "2, 1 failed" in text
    assert "<img" not in shown.source


def test_message_page_of_a_dead_message_links_its_letter(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "billing", "bad 1", payload="text")
    (letter,) = queue.dead_letters()
    shown = site.get(f"/messages/{letter.partition_id}/{letter.transaction_id}")
    assert f"/dead-letters/{letter.id}" in shown.source
    assert "bad 1" in shown.text


def test_message_page_refreshes_at_its_known_place(site: Site, queue: ackwise.Connection) -> None:
    fill(queue, 1)
    (message,) = queue.browse("orders")
    path = f"/messages/{message.partition_id}/tx-0"
    again = site.get(path).source.split('hx-get="')[-1].split('"')[0]
    for part in site.get(path).source.split('hx-get="')[1:]:
        if "?at=" in part:
            again = part.split('"')[0]
    assert "?at=" in again
    assert "tx-0" in site.get(again.removeprefix("/dashboard")).text
    assert site.get(f"{path}?at=x").status == 400
    assert site.get(f"/messages/{message.partition_id}/nope").status == 404


def test_payload_of_a_message_downloads_raw(site: Site, queue: ackwise.Connection) -> None:
    queue.push("orders", HOSTILE, transaction_id="tx")
    (message,) = queue.browse("orders")
    raw = site.get(f"/messages/{message.partition_id}/tx/payload")
    assert raw.source.encode() == message.payload
    assert raw.headers["content-type"] == "application/octet-stream"
    assert raw.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("transaction_id", [HOSTILE, "a/b", "..", "~", "x" * 512])
def test_hostile_messages_show_as_text_and_their_links_work(
    site: Site, queue: ackwise.Connection, transaction_id: str
) -> None:
    queue.push(HOSTILE, HOSTILE, partition=HOSTILE, transaction_id=transaction_id, headers={"<b>": HOSTILE})
    shown = site.get("/messages?" + urlencode({"queue": HOSTILE}))
    assert "<img" not in shown.source
    path = shown.source.split('<th scope="row" class="id"><a href="')[1].split('"')[0].replace("&amp;", "&")
    one = site.get(path.removeprefix("/dashboard"))
    assert one.status == 200
    assert "<img" not in one.source
    assert "<b>" not in one.source
    assert quote(HOSTILE, safe="~") in one.source


def test_huge_nested_payload_is_shown_raw(site: Site, queue: ackwise.Connection, server: Running) -> None:
    payload = b"[" * 500 + b"]" * 500
    queue.push("orders", payload, transaction_id="deep", content_type="application/json")
    queue.push("orders", b"[" + b"1," * 200_000 + b"1]", transaction_id="wide", content_type="application/json")
    partition_id = queue.browse("orders")[0].partition_id
    assert "[" * 500 in site.get(f"/messages/{partition_id}/deep").source
    wide = site.get(f"/messages/{partition_id}/wide")
    assert "shows the begin only" in wide.text
    assert len(wide.source) < 200_000
