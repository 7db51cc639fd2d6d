"""Purge of a queue: what it removes, what it skips, what it leaves, and what its preview says."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.answers import PurgedQueue, QueuePurgePlace
from ackwise.core.errors import BadInput, UnknownQueue
from ackwise.core.rows import GroupPurgePreview, PurgePreview
from ackwise.core.validation import MICROS
from ackwise.engine import queue_purge
from tests.engine.store_harness import StoreHarness, counts


def purge(harness: StoreHarness, **rest: Any) -> PurgedQueue:
    return harness.complete(c.PurgeQueue(queue="q", **rest))


def preview(harness: StoreHarness) -> PurgePreview:
    return harness.store.ask(q.PreviewPurge(queue="q"))


def stored(harness: StoreHarness) -> list[str]:
    return [row.message.payload.decode() for row in harness.store.ask(q.Browse(queue="q", limit=1000))]


def fill(harness: StoreHarness) -> dict[str, Any]:
    """Two groups in two partitions: unread, leased, retrying, acked and dead messages, and a scheduled one."""
    harness.number(6, partition="a")
    harness.number(4, partition="b", priority=1)
    harness.push("later", delay=60)
    acked, dead, retried, held = harness.claim(4, group="one", partitions=("a",), seconds=600).deliveries
    harness.ack(acked)
    harness.reject(dead, error="no")
    harness.retry(retried, delay=100)
    harness.claim(1, group="two")
    return {"acked": acked, "dead": dead, "retried": retried, "held": held}


def test_purge_removes_stored_and_scheduled_messages(harness: StoreHarness) -> None:
    fill(harness)
    shown = preview(harness)
    assert (shown.messages, shown.scheduled, shown.dead, shown.skipped) == (10, 1, 1, 18)
    assert shown.groups == [GroupPurgePreview("one", 8, 1, 1), GroupPurgePreview("two", 10, 1, 1)]
    assert purge(harness) == PurgedQueue(10, 1, 18)
    assert stored(harness) == []
    after = preview(harness)
    assert (after.messages, after.scheduled, after.dead, after.skipped) == (0, 0, 1, 0)
    assert harness.claim(9, group="one").why == "empty"
    harness.advance(100)
    assert harness.claim(9, group="one").why == "empty"
    assert purge(harness) == PurgedQueue(0, 0, 0)


def test_groups_count_purged_messages_as_skipped(harness: StoreHarness) -> None:
    fill(harness)
    purge(harness)
    assert counts(harness.group("one")) == {"acked": 1, "dead": 1, "skipped": 8}
    assert counts(harness.group("two")) == {"skipped": 10}


def test_settlement_of_a_purged_message_is_stale(harness: StoreHarness) -> None:
    deliveries = fill(harness)
    purge(harness)
    assert harness.ack(deliveries["held"]) == ["stale"]
    assert harness.ack(c.ByLease(deliveries["held"].lease_id)) == ["stale"]
    assert harness.ack(deliveries["acked"]) == ["already"]
    assert harness.do(c.Extend(lease_id=deliveries["held"].lease_id, lease=9 * MICROS)).verdict == "stale"
    (row,) = harness.store.ask(q.ListLeases(group="one", live_only=False))
    assert (row.end_kind, row.held) == ("purged", 0)


def test_dead_letter_survives_the_purge_and_is_redriven(harness: StoreHarness) -> None:
    fill(harness)
    purge(harness)
    (letter,) = harness.dead()
    assert harness.redrive(letter).results == {letter.id: "redriven"}
    assert harness.claim(9, group="one").bodies == ["1"]
    assert purge(harness) == PurgedQueue(0, 0, 1)
    assert counts(harness.group("one")) == {"acked": 1, "skipped": 9}
    assert stored(harness) == []


def test_later_messages_than_the_preview_stay(harness: StoreHarness) -> None:
    fill(harness)
    until = preview(harness).until
    harness.advance(1)
    harness.push("new", partition="a")
    harness.push("new later", delay=5)
    assert purge(harness, until=until) == PurgedQueue(10, 1, 18)
    assert harness.claim(9, group="one").bodies == ["new"]
    assert harness.claim(9, group="three").bodies == ["new"]
    harness.advance(5)
    assert harness.claim(9, group="two").bodies == ["new", "new later"]


def test_lease_keeps_what_the_purge_leaves(harness: StoreHarness) -> None:
    harness.number(2)
    until = preview(harness).until
    harness.advance(1)
    harness.push("new")
    hand = harness.claim(9, exclusivity="partition")
    assert purge(harness, until=until) == PurgedQueue(2, 0, 2)
    assert harness.ack(*hand.deliveries) == ["stale", "stale", "acked"]
    assert counts(harness.group()) == {"acked": 1, "skipped": 2}


def test_purge_opens_a_partition_that_a_lease_closed(harness: StoreHarness) -> None:
    harness.push("old", partition="a")
    until = preview(harness).until
    harness.advance(1)
    harness.push("new", partition="a", priority=1)
    hand = harness.claim(1, exclusivity="partition", priorities=(0,))
    assert hand.bodies == ["old"]
    assert harness.claim(1, exclusivity="partition").why == "locked"
    purge(harness, until=until)
    assert harness.claim(1, exclusivity="partition").bodies == ["new"]


def test_purge_in_many_turns_is_the_same(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_purge, "MOST_ROWS", 1)
    fill(harness)
    harness.retry(*harness.claim(4, group="two").deliveries, delay=100)
    for number in range(3):
        harness.push(str(number), partition="c")
    command, turns = c.PurgeQueue(queue="q"), 0
    seen: list[QueuePurgePlace] = []
    while True:
        answer = harness.do(command)
        turns += 1
        if answer.more is None:
            break
        seen.append(answer.more)
        assert answer.more.until == harness.clock.now()
        command = c.PurgeQueue(queue="q", behind=answer.more)
    assert turns > 8
    assert answer == PurgedQueue(13, 1, 24)
    assert [place.messages for place in seen] == sorted(place.messages for place in seen)
    assert stored(harness) == []


def test_push_between_two_turns_stays(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_purge, "MOST_ROWS", 1)
    for partition in ("a", "b", "c"):
        harness.push("old", partition=partition)
    answer = harness.do(c.PurgeQueue(queue="q"))
    harness.advance(1)
    for partition in ("a", "b", "c"):
        harness.push("new", partition=partition)
    while answer.more is not None:
        answer = harness.do(c.PurgeQueue(queue="q", behind=answer.more))
    assert answer.messages == 3
    assert stored(harness) == ["new"] * 3


def test_one_turn_leaves_the_rest_to_the_caller(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_purge, "MOST_ROWS", 1)
    fill(harness)
    command = c.PurgeQueue(queue="q", one_turn=True)
    answer = harness.do(command)
    assert answer.more is not None
    assert c.next_command(command, answer) is None


def test_large_messages_are_removed_a_few_at_a_time(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_purge, "SLICE_BYTES", 1000)
    harness.push(*("x" * 70_000 for _ in range(5)))
    assert purge(harness) == PurgedQueue(5, 0, 0)
    assert stored(harness) == []


def test_transaction_id_of_a_purged_message_is_a_duplicate(harness: StoreHarness) -> None:
    harness.push("x", txid="t")
    harness.push("y", txid="s", delay=60)
    purge(harness)
    assert [receipt.status for receipt in harness.push("x", txid="t")] == ["duplicate"]
    assert [receipt.status for receipt in harness.push("y", txid="s")] == ["queued"]


def test_purge_without_groups_leaves_nothing_to_a_new_one(harness: StoreHarness) -> None:
    harness.number(3)
    assert purge(harness) == PurgedQueue(3, 0, 0)
    harness.push("new")
    assert harness.claim(9, group="late").bodies == ["new"]
    assert [group.group for group in harness.store.ask(q.ListGroups(queue="q"))] == ["late"]


def test_purge_leaves_other_queues_alone(harness: StoreHarness) -> None:
    fill(harness)
    harness.push("other", queue="r")
    harness.push("other later", queue="r", delay=9)
    purge(harness)
    assert harness.store.ask(q.QueueStats(queue="r")).pending == 2


def test_instant_in_the_future_purges_up_to_now(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_purge, "MOST_ROWS", 1)
    harness.push("old", partition="a")
    harness.push("old", partition="b")
    answer = harness.do(c.PurgeQueue(queue="q", until=harness.clock.now() + 99 * MICROS))
    assert answer.more is not None
    assert answer.more.until == harness.clock.now()


@pytest.mark.parametrize(
    "command",
    [
        c.PurgeQueue(queue=""),
        c.PurgeQueue(queue="q", until=-1),
        c.PurgeQueue(queue="q", behind=QueuePurgePlace(-1)),
        c.PurgeQueue(queue="q", behind=QueuePurgePlace(0, lane=-1)),
        c.PurgeQueue(queue="q", behind=QueuePurgePlace(0, lane=1 << 63)),
        c.PurgeQueue(queue="q", behind=QueuePurgePlace(0, messages=-1)),
    ],
    ids=str,
)
def test_bad_purge_is_refused(harness: StoreHarness, command: c.PurgeQueue) -> None:
    harness.push("x")
    before = harness.everything()
    with pytest.raises(BadInput):
        harness.do(command)
    assert harness.everything() == before


def test_purge_of_an_unknown_queue_is_refused(harness: StoreHarness) -> None:
    with pytest.raises(UnknownQueue):
        purge(harness)
    with pytest.raises(UnknownQueue):
        preview(harness)
