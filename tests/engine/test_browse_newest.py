"""Search for messages, newest first: filters, pages, and the bounds of one call."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, UnknownGroup, UnknownPartition, UnknownQueue
from ackwise.core.messages import NewMessage
from ackwise.core.rows import BrowsedMessage, NewestPage
from ackwise.core.validation import MICROS
from ackwise.engine.reads import browse_newest
from tests.engine.store_harness import StoreHarness

ROUNDS = 6


def fill(harness: StoreHarness) -> list[int]:
    """Rounds of pushes to four lanes. Group `g` has messages in each state. Returns the instants of the rounds."""
    harness.configure(retry_limit=None)
    instants = []
    for number in range(ROUNDS):
        for partition, priority, count in (("a", 0, 3), ("b", 0, 1), ("b", 1, 2), ("c", 0, 1)):
            body = b'{"order": {"total": %d}, "region": "%s"}' % (number, b"eu" if number % 2 else b"us")
            headers = {"kind": "even" if number % 2 else "odd", "partition": partition}
            name = f"{partition}{priority}-{number}"
            batch = [
                NewMessage(body, partition, priority, f"{name}.{at}", headers=headers, delay=0) for at in range(count)
            ]
            harness.send(batch)
        instants.append(harness.clock.now())
        harness.advance(1)
    return instants


def use(harness: StoreHarness) -> None:
    """Bring messages of group `g` into each state. Group `h` starts at the end."""
    acked, dead, waiting, held, *rest = harness.claim(10, group="g", partitions=("a",), seconds=600).deliveries
    harness.ack(acked, *rest[:2])
    harness.reject(dead, rest[2])
    harness.retry(waiting, rest[3], delay=60)
    assert held.message.seq == 3
    harness.configure(dead_letters=False)
    harness.reject(*harness.claim(2, group="g", partitions=("b",)).deliveries)
    harness.configure(dead_letters=True)
    harness.do(c.ConfigureGroup(queue="q", group="h", start="new"))


def everything(harness: StoreHarness, **rest: Any) -> list[BrowsedMessage]:
    """All messages in the order of the search."""
    rows = harness.store.ask(q.Browse(queue="q", limit=1000, **rest))
    return sorted(rows, key=lambda row: (-row.message.created_at, -row.message.lane, -row.message.seq))


def search(harness: StoreHarness, **rest: Any) -> NewestPage:
    return harness.store.ask(q.BrowseNewest(queue="q", **rest))


def followed(harness: StoreHarness, **rest: Any) -> list[BrowsedMessage]:
    """The messages of all pages."""
    rows: list[BrowsedMessage] = []
    query = q.BrowseNewest(queue="q", **rest)
    for _ in range(500):
        page = harness.store.ask(query)
        rows += page.messages
        if page.next is None:
            return rows
        assert query.after is None or page.next < query.after
        query.after = page.next
    raise AssertionError("the search does not end")


def totals(rows: list[BrowsedMessage]) -> list[str]:
    return [row.message.transaction_id for row in rows]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
def test_pages_together_are_all_messages_newest_first(harness: StoreHarness, limit: int) -> None:
    fill(harness)
    assert followed(harness, limit=limit) == everything(harness)
    assert followed(harness, limit=limit, partition="b") == everything(harness, partition="b")
    assert search(harness, limit=limit).messages == everything(harness)[:limit]


@pytest.mark.parametrize("state", [*q.BrowseNewest.STATES[:-1], None])
def test_state_filter_finds_what_browse_shows(harness: StoreHarness, state: str | None) -> None:
    fill(harness)
    use(harness)
    for group in ("g", "h"):
        rows = [row for row in everything(harness, group=group) if state in (None, row.state)]
        assert rows or group == "h" or state == "skipped"
        for limit in (2, 1000):
            assert followed(harness, group=group, state=state, limit=limit) == rows, (group, limit)
    assert followed(harness, group="h", state="skipped") == everything(harness, group="h")


def test_time_range_bounds_when_messages_were_stored(harness: StoreHarness) -> None:
    instants = fill(harness)
    rows = everything(harness)
    for after_at, before_at in ((None, instants[2]), (instants[3], None), (instants[1], instants[4]), (0, 1)):
        first, last = after_at or 0, instants[-1] if before_at is None else before_at
        expected = [row for row in rows if first <= row.message.created_at <= last]
        for limit in (2, 1000):
            assert followed(harness, after_at=after_at, before_at=before_at, limit=limit) == expected


def test_header_filter_compares_all_named_headers(harness: StoreHarness) -> None:
    fill(harness)
    rows = followed(harness, headers={"kind": "odd", "partition": "c"})
    assert totals(rows) == ["c0-4.0", "c0-2.0", "c0-0.0"]
    assert followed(harness, headers={"kind": "odd", "partition": "c", "more": ""}) == []


def test_json_filter_compares_fields_of_the_payload(harness: StoreHarness) -> None:
    fill(harness)
    harness.push("not json", partition="c")
    rows = followed(harness, filter="/order/total >= 3 AND /region = 'eu'", partition="c")
    assert totals(rows) == ["c0-5.0", "c0-3.0"]
    assert followed(harness, filter="/order/total > 5") == []


def test_transaction_text_is_a_part_of_the_id(harness: StoreHarness) -> None:
    fill(harness)
    (receipt,) = harness.push("minted")
    assert totals(followed(harness, transaction_text="-3.0", limit=2)) == ["c0-3.0", "b1-3.0", "b0-3.0", "a0-3.0"]
    assert totals(followed(harness, transaction_text=receipt.transaction_id)) == [receipt.transaction_id]


def test_filters_are_combined(harness: StoreHarness) -> None:
    fill(harness)
    use(harness)
    rows = followed(harness, group="g", state="acked", filter="/order/total = 0", headers={"kind": "odd"}, limit=1)
    assert totals(rows) == ["a0-0.0"]


def test_scheduled_messages_are_found_by_their_state(harness: StoreHarness) -> None:
    fill(harness)
    for number in range(5):
        harness.push(f'{{"n": {number}}}', partition="ab"[number % 2], delay=60 + number, txid=f"s{number}")
        harness.advance(1)
    for limit in (1, 2, 100):
        rows = followed(harness, state="scheduled", limit=limit)
        assert totals(rows) == ["s4", "s3", "s2", "s1", "s0"]
    assert [(row.state, row.due_at) for row in rows[:1]] == [("scheduled", harness.clock.now() + 63 * MICROS)]
    assert totals(followed(harness, state="scheduled", partition="b")) == ["s3", "s1"]
    assert totals(followed(harness, state="scheduled", filter="/n > 2")) == ["s4", "s3"]
    assert totals(followed(harness, state="scheduled", transaction_text="2")) == ["s2"]
    at = rows[2].message.created_at
    assert totals(followed(harness, state="scheduled", after_at=at)) == ["s4", "s3", "s2"]
    assert totals(followed(harness, state="scheduled", before_at=at - 1)) == ["s1", "s0"]


def test_search_changes_nothing(harness: StoreHarness) -> None:
    fill(harness)
    use(harness)
    before = harness.everything()
    followed(harness, group="g", state="leased", filter="/order/total > 1")
    assert harness.everything() == before


def test_pruned_messages_are_not_found(harness: StoreHarness) -> None:
    instants = fill(harness)
    harness.configure(retention_seconds=3.5)
    harness.sweep("retain")
    rows = everything(harness)
    assert {row.message.created_at for row in rows} == set(instants[-3:])
    assert followed(harness, limit=2) == rows


@pytest.mark.parametrize(
    ("bound", "most"), [("MOST_SEGMENTS", 2), ("MOST_SCANNED", 3), ("SCAN_BYTES", 100), ("MOST_VISITS_IN_ALL", 5)]
)
def test_call_stops_at_its_bound_and_says_where(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    fill(harness)
    harness.push("{}", partition="c", txid="needle", delay=60)
    for number in range(3):
        harness.push("{}", partition="c", txid=f"s{number}", delay=60)
    monkeypatch.setattr(browse_newest, bound, most)
    page = search(harness, filter="/order/total = 0")
    assert page.messages == []
    assert page.next is not None
    assert 0 < page.scanned < 10
    assert len(totals(followed(harness, filter="/order/total = 0"))) == 7
    page = search(harness, state="scheduled", filter="/a = 1 OR /b = 2 OR /c = 3")
    assert totals(followed(harness, state="scheduled", transaction_text="needle")) == ["needle"]


def test_lanes_beyond_the_bound_make_the_search_incomplete(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        harness.push("old", partition=f"p{number}", txid=f"old{number}")
        harness.advance(1)
    for number in range(6):
        harness.push("new", partition=f"p{number}", txid=f"new{number}")
        harness.advance(1)
    monkeypatch.setattr(browse_newest, "MOST_LANES", 2)
    rows: list[str] = []
    after, seen = None, []
    while True:
        page = search(harness, limit=10, after=after)
        rows += totals(page.messages)
        seen.append(page.incomplete)
        if page.next is None:
            break
        after = page.next
    # The two lanes with the newest messages, exactly as far as no other lane has newer ones.
    assert (rows, seen) == (["new5", "new4", "old5", "old4"], [False, True])
    assert totals(search(harness, partition="p0").messages) == ["new0", "old0"]


def test_filter_that_costs_too_much_takes_no_message(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.push('{"a": [1, 2, 3, 4, 5, 6, 7, 8, 9]}')
    assert len(followed(harness, filter="/a = 9")) == 1
    monkeypatch.setattr(browse_newest, "MOST_VISITS", 5)
    assert followed(harness, filter="/a = 9") == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "ready"},
        {"state": "lost", "group": "g"},
        {"filter": "/a >"},
        {"filter": "/a = 1 " * 1000},
        {"transaction_text": ""},
        {"transaction_text": "x" * 513},
        {"headers": {str(number): "" for number in range(11)}},
        {"headers": {"a": "x" * 70_000}},
        {"limit": 1001},
        {"after_at": -1},
        {"after": (1, 2, -5)},
    ],
    ids=lambda wrong: ",".join(wrong),
)
def test_bad_search_is_refused(harness: StoreHarness, wrong: dict[str, Any]) -> None:
    harness.push("x")
    with pytest.raises(BadInput):
        search(harness, **wrong)


def test_search_of_missing_names_is_refused(harness: StoreHarness) -> None:
    with pytest.raises(UnknownQueue):
        search(harness)
    harness.push("x")
    with pytest.raises(UnknownGroup):
        search(harness, group="g")
    with pytest.raises(UnknownPartition):
        search(harness, partition="p")
    assert search(harness, limit=0) == NewestPage([], None, 0)
