"""The lanes of a queue, their messages by place, and what a lease still holds of them."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, UnknownQueue
from ackwise.core.spans import Cursor
from ackwise.store.turn import claim
from tests.contract.support import Desk


def held(desk: Desk, lease_id: str) -> list[tuple[int, int, int, int]]:
    """(lo, hi, failures, attempt) of leases that stay in one lane."""
    rows = desk.store.list_held(q.ListHeld(lease_id=lease_id))
    return [(row.lo, row.hi, row.failures, row.attempt) for row in rows]


def keys(desk: Desk, **query: object) -> list[str | None]:
    return [row.key for row in desk.store.list_leases(q.ListLeases(**query))]  # type: ignore[arg-type]


# lanes


def test_lanes_say_where_they_begin_and_end(desk: Desk) -> None:
    desk.configure(retention_seconds=10)
    receipts = {name: desk.number(2, partition=name)[0] for name in ("b", "a")}
    desk.advance(10)
    desk.sweep()
    desk.push("x", "y", "z", partition="a", priority=7)
    desk.push("x", partition="b")
    desk.push("elsewhere", queue="other")
    rows = desk.store.list_lanes(q.ListLanes(queue="q"))
    assert [row.lane for row in rows] == sorted(row.lane for row in rows)
    assert {(r.partition, r.priority): (r.partition_id, r.start, r.head) for r in rows} == {
        ("a", 0): (receipts["a"].partition_id, 2, 2),
        ("b", 0): (receipts["b"].partition_id, 2, 3),
        ("a", 7): (receipts["a"].partition_id, 0, 3),
    }


def test_a_queue_without_messages_has_no_lanes(desk: Desk) -> None:
    desk.configure()
    assert desk.store.list_lanes(q.ListLanes(queue="q")) == []
    with pytest.raises(UnknownQueue):
        desk.store.list_lanes(q.ListLanes(queue="nowhere"))


def test_messages_are_read_by_place_whoever_holds_them(desk: Desk) -> None:
    for body in "abc":
        desk.push(body, body.upper())
    desk.push("x", partition="other")
    desk.claim(1)
    first, second = [row.lane for row in desk.store.list_lanes(q.ListLanes(queue="q"))]
    wanted = [(first, 1, 4), (second, 0, 9), (first, 0, 0), (first, 6, 9), (99, 0, 5), (first, 5, 6)]
    read = desk.store.read(wanted)
    found = [
        [s.message(seq).payload.decode() for s in segments for seq in range(max(lo, s.first), min(hi, s.last + 1))]
        for (_, lo, hi), segments in zip(wanted, read, strict=True)
    ]
    assert found == [["A", "b", "B"], ["x"], [], [], [], ["C"]]
    assert desk.store.read([]) == []


# leases


def test_a_lease_says_what_it_still_holds(desk: Desk) -> None:
    desk.configure(retry_limit=5)
    desk.number(6)
    desk.retry(desk.take())
    desk.release(desk.take())
    hand = desk.claim(6)
    assert held(desk, hand.lease_id) == [(0, 1, 1, 3), (1, 6, 0, 1)]
    desk.ack(hand.deliveries[2], hand.deliveries[3])
    desk.retry(hand.deliveries[5])
    assert held(desk, hand.lease_id) == [(0, 1, 1, 3), (1, 2, 0, 1), (4, 5, 0, 1)]


def test_lanes_come_in_their_order(desk: Desk) -> None:
    for partition in ("b", "a", "c"):
        desk.number(2, partition=partition)
    hand = desk.claim(6)
    rows = desk.store.list_held(q.ListHeld(lease_id=hand.lease_id))
    assert [(row.lane, row.lo) for row in rows] == sorted((row.lane, row.lo) for row in rows)
    assert {(row.lane, row.lo, row.hi) for row in rows} == set(hand.claimed.ranges)


def test_nothing_is_held_by_a_lease_that_is_over(desk: Desk) -> None:
    desk.number(4)
    done, late, old = desk.claim(1), desk.claim(1, seconds=5), desk.claim(1, key="k")
    desk.ack(*done.deliveries)
    new = desk.claim(1, key="k")
    assert [held(desk, hand.lease_id) for hand in (done, old)] == [[], []]
    assert held(desk, new.lease_id) == [(2, 3, 0, 2)]
    desk.advance(5)
    assert held(desk, late.lease_id) == []


@pytest.mark.parametrize("wrong", ["", "x", "L1", "L1-00000000", "Lzzzzzzzzzzzzz-00000000", "a\0", "L1-0000000g"])
def test_nor_by_one_that_nobody_knows(desk: Desk, wrong: str) -> None:
    desk.number(1)
    hand = desk.claim(1)
    forged = hand.lease_id[:-1] + ("0" if hand.lease_id[-1] != "0" else "1")
    assert held(desk, wrong) == held(desk, forged) == []


def test_leases_are_found_by_what_their_keys_begin_with(desk: Desk) -> None:
    desk.number(9)
    for key in ("job/1", "job/2", "job%", "jobs/1", "é/1", None):
        desk.claim(1, key=key)
    desk.claim(1, key="job/3", group="g")
    desk.ack(*desk.claim(1, key="job/2").deliveries)
    assert keys(desk, key_prefix="job/") == ["job/3", "job/1"]
    assert keys(desk, key_prefix="job/", live_only=False) == ["job/2", "job/3", "job/1"]
    assert keys(desk, key_prefix="job/", group="g") == ["job/3"]
    assert keys(desk, key_prefix="job", limit=2) == ["job/3", "jobs/1"]
    assert [keys(desk, key_prefix=one) for one in ("é/", "job%", "_", "%", "JOB")] == [["é/1"], ["job%"], [], [], []]
    assert len(keys(desk)) == 6
    for wrong in ("", "a\0", 5):
        with pytest.raises(BadInput):
            keys(desk, key_prefix=wrong)


def test_a_superseded_claim_has_given_its_key_away(desk: Desk) -> None:
    desk.number(1)
    old, new = desk.claim(1, key="job/1"), desk.claim(1, key="job/1")
    (row,) = desk.store.list_leases(q.ListLeases(key_prefix="job/", live_only=False))
    assert (row.lease_id, row.held) == (new.lease_id, 1)
    assert desk.ack(c.ByLease(old.lease_id)) == ["stale"]


def test_a_claim_reads_a_partition_once_however_many_lanes_it_visits(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for priority in range(40):
        desk.push(str(priority), priority=priority)
    entered: list[int] = []
    may_enter = claim._Claiming._may_enter

    def counted(claiming: claim._Claiming, cursors: list[Cursor]) -> bool:
        entered.append(len(cursors))
        return may_enter(claiming, cursors)

    monkeypatch.setattr(claim._Claiming, "_may_enter", counted)
    assert desk.claim(30).bodies == [str(n) for n in range(30)]
    assert entered == [40]
