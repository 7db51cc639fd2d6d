"""Timeline of a message: each delivery with its end, the holder, the dead letter and the traces, group by group."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, MessageNotFound
from ackwise.core.rows import GroupTimeline, MessageHolder, Timeline
from ackwise.core.validation import MICROS
from tests.engine.store_harness import StoreHarness


def timeline(harness: StoreHarness, transaction_id: str = "t") -> Timeline:
    partition_id = harness.store.ask(q.ListPartitions(queue="q"))[0].partition_id
    return harness.store.ask(q.MessageTimeline(partition_id=partition_id, transaction_id=transaction_id))


def group(harness: StoreHarness, name: str = "g") -> GroupTimeline:
    (row,) = (row for row in timeline(harness).groups if row.group == name)
    return row


def told(row: GroupTimeline) -> list[tuple[str, str | None, str | None]]:
    return [(event.event, event.owner, event.error) for event in row.events]


def fail(harness: StoreHarness, owner: str, outcome: str = "retry", **rest: Any) -> None:
    """One delivery that ends with a failure, 5 seconds after its claim."""
    hand = harness.claim(1, group="g", owner=owner)
    harness.advance(5)
    getattr(harness, outcome)(*hand.deliveries, **rest)


def test_each_failed_delivery_is_an_event(harness: StoreHarness) -> None:
    harness.configure(retry_limit=None)
    harness.push("x", txid="t")
    pushed_at = harness.clock.now()
    fail(harness, "w1", error="first", error_type="FirstError", trace="line 1")
    fail(harness, "w2", error="second", error_type="SecondError", trace="line 2")
    fail(harness, "w3", outcome="release")
    harness.claim(1, group="g", owner="w4", seconds=10)
    harness.advance(10)
    harness.sweep("expire")
    row = group(harness)
    assert told(row) == [
        ("retry", "w1", "first"),
        ("retry", "w2", "second"),
        ("release", "w3", None),
        ("lease_expiry", "w4", None),
    ]
    assert [event.at for event in row.events] == [pushed_at + 5 * MICROS * n for n in (1, 2, 3, 5)]
    assert [event.error_type for event in row.events] == ["FirstError", "SecondError", None, None]
    assert [event.trace for event in row.events] == [None, "line 2", None, None]
    assert (row.state, row.deliveries, row.holder) == ("waiting", 4, None)


def test_holder_is_the_lease_with_its_deadline(harness: StoreHarness) -> None:
    harness.push("x", txid="t")
    fail(harness, "w1", error="no")
    hand = harness.claim(1, group="g", owner="w2", seconds=30)
    now = harness.clock.now()
    row = group(harness)
    assert row.holder == MessageHolder(hand.lease_id, "w2", now, now + 30 * MICROS)
    assert (row.state, row.failures, row.deliveries, row.due_at) == ("leased", 1, 2, None)
    assert told(row) == [("retry", "w1", "no")]


def test_waiting_message_shows_its_next_attempt(harness: StoreHarness) -> None:
    harness.push("x", txid="t")
    fail(harness, "w1", delay=60)
    assert group(harness).due_at == harness.clock.now() + 60 * MICROS
    harness.advance(60)
    assert group(harness).due_at is None


def test_dead_message_shows_its_letter_and_history(harness: StoreHarness) -> None:
    harness.push("x", txid="t")
    fail(harness, "w1", error="soft")
    fail(harness, "w2", outcome="reject", error="hard", error_type="HardError", trace="line 9")
    (letter,) = harness.dead()
    row = group(harness)
    assert told(row) == [("retry", "w1", "soft"), ("reject", "w2", "hard"), ("dead", None, "hard")]
    assert [(event.error_type, event.trace) for event in row.events[1:]] == [
        ("HardError", "line 9"),
        ("HardError", None),
    ]
    assert (row.state, row.letter_id, row.reason, row.failures) == ("dead", letter.id, "rejected", letter.failures)
    harness.redrive(letter)
    row = group(harness)
    assert (row.letter_id, row.reason) == (None, None)
    assert told(row)[-1] == ("redrive", None, None)


def test_letter_from_before_a_seek_stays_in_the_timeline(harness: StoreHarness) -> None:
    harness.push("x", txid="t")
    fail(harness, "w1", outcome="reject", error="old")
    harness.seek("start", "g")
    row = group(harness)
    assert (row.state, told(row)) == ("ready", [("reject", "w1", "old"), ("dead", None, "old")])
    fail(harness, "w2", error="new")
    row = group(harness)
    assert told(row) == [("reject", "w1", "old"), ("dead", None, "old"), ("retry", "w2", "new")]
    assert (row.state, row.letter_id, row.deliveries) == ("waiting", harness.dead()[0].id, 1)


def test_timeline_has_each_group_also_a_deleted_one(harness: StoreHarness) -> None:
    harness.push("x", txid="t")
    harness.ack(*harness.claim(1, group="a").deliveries)
    fail(harness, "w", outcome="reject", error="no")
    harness.do(c.ConfigureGroup(queue="q", group="n", start="new"))
    assert [(row.group, row.state, told(row)) for row in timeline(harness).groups if row.group != "g"] == [
        ("a", "acked", []),
        ("n", "skipped", []),
    ]
    harness.do(c.DeleteGroup(queue="q", group="g"))
    assert told(group(harness)) == [("reject", "w", "no"), ("dead", None, "no")]


def test_place_names_the_same_message(harness: StoreHarness) -> None:
    harness.number(3)
    harness.push("x", txid="t")
    fail(harness, "w", outcome="reject", error="no")
    shown = timeline(harness)
    lane, seq = shown.found.message.lane, shown.found.message.seq
    assert (lane, seq) == (shown.found.message.lane, 3)
    assert harness.store.ask(q.MessageTimeline(lane=lane, seq=seq)) == shown
    dead = harness.dead()[0]
    assert harness.store.ask(q.MessageTimeline(lane=lane, seq=0)).groups[0].letter_id == dead.id


def test_removed_message_is_told_by_its_letter(harness: StoreHarness) -> None:
    harness.push("x", txid="t")
    fail(harness, "w", outcome="reject", error="no")
    place = timeline(harness).found.message
    harness.complete(c.PurgeQueue(queue="q"))
    shown = timeline(harness)
    assert shown.found.message.payload == b"x"
    assert told(shown.groups[0])[-1] == ("dead", None, "no")
    assert harness.store.ask(q.MessageTimeline(lane=place.lane, seq=place.seq)) == shown


def test_scheduled_message_has_no_events(harness: StoreHarness) -> None:
    harness.push("first")
    harness.claim(1, group="g")
    harness.push("x", txid="t", delay=60)
    shown = timeline(harness)
    assert shown.found.due_at == harness.clock.now() + 60 * MICROS
    assert shown.groups == [GroupTimeline("g", "scheduled")]


def test_traces_of_the_message_are_added(harness: StoreHarness) -> None:
    (receipt,) = harness.push("x", txid="t")
    harness.do(c.AddTrace(partition_id=receipt.partition_id, transaction_id="t", data="1", names=["n"], worker="w"))
    (trace,) = timeline(harness).traces
    assert (trace.data, trace.names, trace.worker) == ("1", ["n"], "w")


@pytest.mark.parametrize(
    "query",
    [
        q.MessageTimeline(),
        q.MessageTimeline(partition_id="x"),
        q.MessageTimeline(transaction_id="x"),
        q.MessageTimeline(lane=1),
        q.MessageTimeline(seq=1),
        q.MessageTimeline(partition_id="x", transaction_id="x", lane=1, seq=1),
        q.MessageTimeline(partition_id="x", transaction_id="x", lane=1),
        q.MessageTimeline(lane=-1, seq=1),
        q.MessageTimeline(lane=1, seq=1 << 63),
    ],
    ids=str,
)
def test_message_named_badly_is_refused(harness: StoreHarness, query: q.MessageTimeline) -> None:
    with pytest.raises(BadInput):
        harness.store.ask(query)


def test_missing_message_has_no_timeline(harness: StoreHarness) -> None:
    (receipt,) = harness.push("x", txid="t")
    for query in (
        q.MessageTimeline(partition_id=receipt.partition_id, transaction_id="u"),
        q.MessageTimeline(partition_id="nowhere", transaction_id="t"),
        q.MessageTimeline(lane=1, seq=99),
        q.MessageTimeline(lane=99, seq=0),
        q.MessageTimeline(lane=1, seq=1 << 50),
    ):
        with pytest.raises(MessageNotFound):
            harness.store.ask(query)
