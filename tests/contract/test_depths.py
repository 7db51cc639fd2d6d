"""What waits in each priority, who holds what, and how many leases ran out: as of now."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, UnknownQueue
from ackwise.core.messages import PlainBatch
from ackwise.store import depths
from ackwise.store.session import Session
from ackwise.store.turn.catalog import QueueRow
from tests.contract.support import Desk


def depth(desk: Desk, queue: str = "q", **rest: Any) -> q.Depth:
    (found,) = desk.store.list_depths(q.ListDepths(queue=queue, **rest))
    return found


def test_without_a_group_everything_waits(desk: Desk) -> None:
    desk.push("a", "b")
    desk.push("c", priority=7)
    assert depth(desk) == q.Depth("q", {0: 2, 7: 1}, [], 0)


def test_what_is_held_does_not_wait(desk: Desk) -> None:
    desk.push("a")
    desk.push("b", "c", priority=7)
    hand = desk.claim(2, key="k", owner="me", seconds=9)
    found = depth(desk)
    assert found.waiting == {7: 1}
    (lease,) = found.leases
    assert (lease.lease_id, lease.key, lease.owner, lease.deadline) == (
        hand.lease_id, "k", "me", hand.claimed.deadline,
    )  # fmt: skip
    assert [(prio, lo, hi) for _, prio, lo, hi in lease.held] == [(0, 0, 1), (7, 0, 1)]
    desk.ack(hand.deliveries[0])
    assert [prio for _, prio, _, _ in depth(desk).leases[0].held] == [7]


def test_what_ran_out_waits_before_the_sweep_and_is_counted_once(desk: Desk) -> None:
    desk.push("a", "b")
    desk.claim(2, seconds=5)
    desk.advance(5)
    assert depth(desk) == q.Depth("q", {0: 2}, [], 1)
    desk.sweep("expire")
    assert depth(desk) == q.Depth("q", {0: 2}, [], 1)
    desk.claim(1, seconds=5)
    desk.claim(1, seconds=5)
    desk.advance(5)
    desk.sweep("expire")
    assert depth(desk) == q.Depth("q", {0: 2}, [], 3)


def test_leases_that_were_settled_or_released_did_not_run_out(desk: Desk) -> None:
    desk.push("a", "b")
    desk.ack(desk.take())
    desk.release(desk.take())
    desk.advance(3600)
    assert depth(desk) == q.Depth("q", {0: 1}, [], 0)


def test_every_queue_and_another_group(desk: Desk) -> None:
    desk.push("a")
    desk.push("b", queue="r")
    desk.ack(desk.take(group="g"))
    assert depth(desk, group="g").waiting == {}
    assert {one.queue: one.waiting for one in desk.store.list_depths(q.ListDepths())} == {"q": {0: 1}, "r": {0: 1}}


def test_live_leases_come_oldest_first(desk: Desk) -> None:
    desk.push("a", "b", "c")
    keys = [desk.claim(1, key=key) and key for key in ("x", "y", "z")]
    assert [lease.key for lease in depth(desk).leases] == keys


def test_a_queue_that_is_not_there(desk: Desk) -> None:
    with pytest.raises(UnknownQueue):
        depth(desk, "nowhere")
    with pytest.raises(BadInput):
        depth(desk, "")


def test_a_plain_batch_goes_to_its_priority(desk: Desk) -> None:
    desk.do(c.Push(queue="q", messages=PlainBatch([b"1", b"2"], priority=3)))
    desk.do(c.Push(queue="q", messages=PlainBatch([b"3"], priority=1)))
    desk.do(c.Push(queue="q", messages=PlainBatch([b"4"], ["t"], priority=3)))
    assert depth(desk).waiting == {1: 1, 3: 3}
    assert desk.claim().bodies == ["3", "1", "2", "4"]
    assert [one.status for one in desk.do(c.Push(queue="q", messages=PlainBatch([b"4"], ["t"], priority=1)))] == [
        "duplicate"
    ]


@pytest.mark.parametrize("priority", [-1, True, 1.5, 2**31, None])
def test_a_plain_batch_with_a_wrong_priority_is_refused(desk: Desk, priority: object) -> None:
    with pytest.raises(BadInput, match="priority"):
        desk.do(c.Push(queue="q", messages=PlainBatch([b"1"], priority=priority)))  # type: ignore[arg-type]
    assert desk.store.list_queues(q.ListQueues()) == []


def test_every_queue_page_by_page(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b", "B", "_", "a b", "é", "a"):
        desk.push("x", queue=name)
    looked: list[str] = []
    one = depths._depth

    def noted(session: Session, queue: QueueRow, *rest: Any) -> q.Depth:
        looked.append(queue.name)
        return one(session, queue, *rest)

    monkeypatch.setattr(depths, "_depth", noted)

    def names(**query: Any) -> list[str]:
        looked.clear()
        found = [depth.queue for depth in desk.store.list_depths(q.ListDepths(**query))]
        assert looked == found
        return found

    assert names() == ["B", "_", "a", "a b", "b", "é"]
    assert names(limit=2) == ["B", "_"]
    assert names(after="_", limit=2) == ["a", "a b"]
    assert names(after="b") == ["é"]
    assert names(after="é", limit=2) == []
    with pytest.raises(BadInput):
        names(limit=-1)


def test_whether_anybody_holds_anything(desk: Desk) -> None:
    def held(**query: Any) -> bool:
        return desk.store.is_held(q.IsHeld(queue="q", **query))

    with pytest.raises(UnknownQueue):
        held()
    desk.push("a", "b")
    assert not held()
    first = desk.claim(1, seconds=5)
    assert (held(), held(group="g")) == (True, False)
    desk.ack(*first.deliveries)
    assert not held()
    desk.claim(1, seconds=5)
    desk.advance(5)
    assert not held()
