"""The lanes of a queue, their messages by place, and what a lease still holds of them."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, UnknownQueue
from ackwise.core.ids import LaneId
from ackwise.core.lane_range import LaneRange
from ackwise.core.spans import Cursor
from ackwise.engine import claim
from tests.engine.store_harness import StoreHarness


def held(harness: StoreHarness, lease_id: str) -> list[tuple[int, int, int, int]]:
    """(lo, hi, failures, attempt) of leases that stay in one lane."""
    rows = harness.store.ask(q.ListHeld(lease_id=lease_id))
    return [(row.lo, row.hi, row.failures, row.attempt) for row in rows]


def keys(harness: StoreHarness, **query: object) -> list[str | None]:
    return [row.key for row in harness.store.ask(q.ListLeases(**query))]  # type: ignore[arg-type]


# lanes


def test_lanes_say_where_they_begin_and_end(harness: StoreHarness) -> None:
    harness.configure(retention_seconds=10)
    receipts = {name: harness.number(2, partition=name)[0] for name in ("b", "a")}
    harness.advance(10)
    harness.sweep()
    harness.push("x", "y", "z", partition="a", priority=7)
    harness.push("x", partition="b")
    harness.push("elsewhere", queue="other")
    rows = harness.store.ask(q.ListLanes(queue="q"))
    assert [row.lane for row in rows] == sorted(row.lane for row in rows)
    assert {(r.partition, r.priority): (r.partition_id, r.start, r.head) for r in rows} == {
        ("a", 0): (receipts["a"].partition_id, 2, 2),
        ("b", 0): (receipts["b"].partition_id, 2, 3),
        ("a", 7): (receipts["a"].partition_id, 0, 3),
    }


def test_queue_without_messages_has_no_lanes(harness: StoreHarness) -> None:
    harness.configure()
    assert harness.store.ask(q.ListLanes(queue="q")) == []
    with pytest.raises(UnknownQueue):
        harness.store.ask(q.ListLanes(queue="nowhere"))


def test_messages_are_read_by_place_under_any_holder(harness: StoreHarness) -> None:
    for body in "abc":
        harness.push(body, body.upper())
    harness.push("x", partition="other")
    harness.claim(1)
    first, second = [row.lane for row in harness.store.ask(q.ListLanes(queue="q"))]
    wanted = [(first, 1, 4), (second, 0, 9), (first, 0, 0), (first, 6, 9), (99, 0, 5), (first, 5, 6)]
    read = harness.store.read([LaneRange(LaneId(lane), lo, hi) for lane, lo, hi in wanted])
    found = [
        [s.message(seq).payload.decode() for s in segments for seq in range(max(lo, s.first), min(hi, s.last + 1))]
        for (_, lo, hi), segments in zip(wanted, read, strict=True)
    ]
    assert found == [["A", "b", "B"], ["x"], [], [], [], ["C"]]
    assert harness.store.read([]) == []


# leases


def test_lease_says_what_it_still_holds(harness: StoreHarness) -> None:
    harness.configure(retry_limit=5)
    harness.number(6)
    harness.retry(harness.take())
    harness.release(harness.take())
    hand = harness.claim(6)
    assert held(harness, hand.lease_id) == [(0, 1, 1, 3), (1, 6, 0, 1)]
    harness.ack(hand.deliveries[2], hand.deliveries[3])
    harness.retry(hand.deliveries[5])
    assert held(harness, hand.lease_id) == [(0, 1, 1, 3), (1, 2, 0, 1), (4, 5, 0, 1)]


def test_lanes_come_in_their_order(harness: StoreHarness) -> None:
    for partition in ("b", "a", "c"):
        harness.number(2, partition=partition)
    hand = harness.claim(6)
    rows = harness.store.ask(q.ListHeld(lease_id=hand.lease_id))
    assert [(row.lane, row.lo) for row in rows] == sorted((row.lane, row.lo) for row in rows)
    assert {(row.lane, row.lo, row.hi) for row in rows} == set(hand.claimed.ranges)


def test_ended_lease_holds_no_range(harness: StoreHarness) -> None:
    harness.number(4)
    done, late, old = harness.claim(1), harness.claim(1, seconds=5), harness.claim(1, key="k")
    harness.ack(*done.deliveries)
    new = harness.claim(1, key="k")
    assert [held(harness, hand.lease_id) for hand in (done, old)] == [[], []]
    assert held(harness, new.lease_id) == [(2, 3, 0, 2)]
    harness.advance(5)
    assert held(harness, late.lease_id) == []


@pytest.mark.parametrize("wrong", ["", "x", "L1", "L1-00000000", "Lzzzzzzzzzzzzz-00000000", "a\0", "L1-0000000g"])
def test_held_ranges_of_unknown_lease_are_empty(harness: StoreHarness, wrong: str) -> None:
    harness.number(1)
    hand = harness.claim(1)
    forged = hand.lease_id[:-1] + ("0" if hand.lease_id[-1] != "0" else "1")
    assert held(harness, wrong) == held(harness, forged) == []


def test_leases_are_found_by_what_their_keys_begin_with(harness: StoreHarness) -> None:
    harness.number(9)
    for key in ("job/1", "job/2", "job%", "jobs/1", "é/1", None):
        harness.claim(1, key=key)
    harness.claim(1, key="job/3", group="g")
    harness.ack(*harness.claim(1, key="job/2").deliveries)
    assert keys(harness, key_prefix="job/") == ["job/3", "job/1"]
    assert keys(harness, key_prefix="job/", live_only=False) == ["job/2", "job/3", "job/1"]
    assert keys(harness, key_prefix="job/", group="g") == ["job/3"]
    assert keys(harness, key_prefix="job", limit=2) == ["job/3", "jobs/1"]
    assert [keys(harness, key_prefix=one) for one in ("é/", "job%", "_", "%", "JOB")] == [["é/1"], ["job%"], [], [], []]
    assert len(keys(harness)) == 6
    for wrong in ("", "a\0", 5):
        with pytest.raises(BadInput):
            keys(harness, key_prefix=wrong)


def test_superseded_claim_has_given_its_key_away(harness: StoreHarness) -> None:
    harness.number(1)
    old, new = harness.claim(1, key="job/1"), harness.claim(1, key="job/1")
    (row,) = harness.store.ask(q.ListLeases(key_prefix="job/", live_only=False))
    assert (row.lease_id, row.held) == (new.lease_id, 1)
    assert harness.ack(c.ByLease(old.lease_id)) == ["stale"]


def test_claim_reads_partition_once_for_many_lanes(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    for priority in range(40):
        harness.push(str(priority), priority=priority)
    entered: list[int] = []
    may_enter = claim._QueueClaim._may_enter

    def counted(claiming: claim._QueueClaim, cursors: list[Cursor]) -> bool:
        entered.append(len(cursors))
        return may_enter(claiming, cursors)

    monkeypatch.setattr(claim._QueueClaim, "_may_enter", counted)
    assert harness.claim(30).bodies == [str(n) for n in range(30)]
    assert entered == [40]
