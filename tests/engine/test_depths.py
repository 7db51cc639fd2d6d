"""What waits in each priority, who holds what, and how many leases ran out: as of now."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, UnknownQueue
from ackwise.core.messages import PlainBatch
from ackwise.core.rows import Depth
from ackwise.engine.catalog import QueueRow
from ackwise.engine.reads import leases
from ackwise.engine.reads.registry import Snapshot
from tests.engine.store_harness import StoreHarness


def depth(harness: StoreHarness, queue: str = "q", **rest: Any) -> Depth:
    (found,) = harness.store.ask(q.ListDepths(queue=queue, **rest))
    return found


def test_depth_without_a_group_counts_all_messages(harness: StoreHarness) -> None:
    harness.push("a", "b")
    harness.push("c", priority=7)
    assert depth(harness) == Depth("q", {0: 2, 7: 1}, [], 0)


def test_depth_leaves_out_held_messages(harness: StoreHarness) -> None:
    harness.push("a")
    harness.push("b", "c", priority=7)
    hand = harness.claim(2, key="k", owner="me", seconds=9)
    found = depth(harness)
    assert found.waiting == {7: 1}
    (lease,) = found.leases
    assert (lease.lease_id, lease.key, lease.owner, lease.deadline) == (
        hand.lease_id, "k", "me", hand.claimed.deadline,
    )  # fmt: skip
    assert [(prio, lo, hi) for _, prio, lo, hi in lease.held] == [(0, 0, 1), (7, 0, 1)]
    harness.ack(hand.deliveries[0])
    assert [prio for _, prio, _, _ in depth(harness).leases[0].held] == [7]


def test_expired_lease_before_a_sweep_counts_once(harness: StoreHarness) -> None:
    harness.push("a", "b")
    harness.claim(2, seconds=5)
    harness.advance(5)
    assert depth(harness) == Depth("q", {0: 2}, [], 1)
    harness.sweep("expire")
    assert depth(harness) == Depth("q", {0: 2}, [], 1)
    harness.claim(1, seconds=5)
    harness.claim(1, seconds=5)
    harness.advance(5)
    harness.sweep("expire")
    assert depth(harness) == Depth("q", {0: 2}, [], 3)


def test_leases_that_were_settled_or_released_did_not_run_out(harness: StoreHarness) -> None:
    harness.push("a", "b")
    harness.ack(harness.take())
    harness.release(harness.take())
    harness.advance(3600)
    assert depth(harness) == Depth("q", {0: 1}, [], 0)


def test_every_queue_and_another_group(harness: StoreHarness) -> None:
    harness.push("a")
    harness.push("b", queue="r")
    harness.ack(harness.take(group="g"))
    assert depth(harness, group="g").waiting == {}
    assert {one.queue: one.waiting for one in harness.store.ask(q.ListDepths())} == {"q": {0: 1}, "r": {0: 1}}


def test_live_leases_come_oldest_first(harness: StoreHarness) -> None:
    harness.push("a", "b", "c")
    keys = [harness.claim(1, key=key) and key for key in ("x", "y", "z")]
    assert [lease.key for lease in depth(harness).leases] == keys


def test_queue_that_is_not_there(harness: StoreHarness) -> None:
    with pytest.raises(UnknownQueue):
        depth(harness, "nowhere")
    with pytest.raises(BadInput):
        depth(harness, "")


def test_plain_batch_goes_to_its_priority(harness: StoreHarness) -> None:
    harness.do(c.Push(queue="q", messages=PlainBatch([b"1", b"2"], priority=3)))
    harness.do(c.Push(queue="q", messages=PlainBatch([b"3"], priority=1)))
    harness.do(c.Push(queue="q", messages=PlainBatch([b"4"], ["t"], priority=3)))
    assert depth(harness).waiting == {1: 1, 3: 3}
    assert harness.claim().bodies == ["3", "1", "2", "4"]
    assert [one.status for one in harness.do(c.Push(queue="q", messages=PlainBatch([b"4"], ["t"], priority=1)))] == [
        "duplicate"
    ]


@pytest.mark.parametrize("priority", [-1, True, 1.5, 2**31, None])
def test_plain_batch_with_a_wrong_priority_is_refused(harness: StoreHarness, priority: object) -> None:
    with pytest.raises(BadInput, match="priority"):
        harness.do(c.Push(queue="q", messages=PlainBatch([b"1"], priority=priority)))  # type: ignore[arg-type]
    assert harness.store.ask(q.ListQueues()) == []


def test_every_queue_page_by_page(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b", "B", "_", "a b", "é", "a"):
        harness.push("x", queue=name)
    looked: list[str] = []
    one = leases._depth

    def noted(snapshot: Snapshot, queue: QueueRow, *rest: Any) -> Depth:
        looked.append(queue.name)
        return one(snapshot, queue, *rest)

    monkeypatch.setattr(leases, "_depth", noted)

    def names(**query: Any) -> list[str]:
        looked.clear()
        found = [depth.queue for depth in harness.store.ask(q.ListDepths(**query))]
        assert looked == found
        return found

    assert names() == ["B", "_", "a", "a b", "b", "é"]
    assert names(limit=2) == ["B", "_"]
    assert names(after="_", limit=2) == ["a", "a b"]
    assert names(after="b") == ["é"]
    assert names(after="é", limit=2) == []
    with pytest.raises(BadInput):
        names(limit=-1)


def test_is_held_tells_whether_a_live_lease_exists(harness: StoreHarness) -> None:
    def held(**query: Any) -> bool:
        return harness.store.ask(q.IsHeld(queue="q", **query))

    with pytest.raises(UnknownQueue):
        held()
    harness.push("a", "b")
    assert not held()
    first = harness.claim(1, seconds=5)
    assert (held(), held(group="g")) == (True, False)
    harness.ack(*first.deliveries)
    assert not held()
    harness.claim(1, seconds=5)
    harness.advance(5)
    assert not held()
