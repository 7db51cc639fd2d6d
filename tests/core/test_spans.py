"""Cutting spans, joining ranges, and what a lease knows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.core.ids import GroupId, LaneId, LeaseNo, Micros
from ackwise.core.lane_range import LaneRange, merge_ranges
from ackwise.core.lifecycle import State
from ackwise.core.spans import Cursor, Lease, Span, cut

LANE, GROUP = LaneId(1), GroupId(2)
ranges = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(1, 10)).map(
        lambda t: LaneRange(LaneId(t[0]), t[1], t[1] + t[2])
    )
)


def lease(granted: list[LaneRange]) -> Lease:
    return Lease(LeaseNo(1), 2, 1, GroupId(1), "me", "here", "none", 0, 100, Micros(0), granted)


def places(found: list[LaneRange]) -> set[tuple[int, int]]:
    return {(lane, seq) for lane, lo, hi in found for seq in range(lo, hi)}


def test_cut_in_the_middle_gives_three_pieces() -> None:
    span = Span(LANE, GROUP, 10, 20, lease=LeaseNo(7), fails=2, delivs=3, history="h")
    before, inside, after = cut(span, 13, 16)
    assert before is not None
    assert after is not None
    assert [(s.lo, s.hi) for s in (before, inside, after)] == [(10, 13), (13, 16), (16, 20)]
    assert {(s.lease, s.fails, s.delivs, s.history) for s in (before, inside, after)} == {(7, 2, 3, "h")}


def test_cut_beyond_the_ends_gives_the_whole() -> None:
    before, inside, after = cut(Span(LANE, GROUP, 10, 20), 0, 99)
    assert (before, after, inside.lo, inside.hi) == (None, None, 10, 20)


@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 100), st.integers(1, 100))
def test_cut_loses_and_doubles_nothing(start: int, size: int, at: int, length: int) -> None:
    span = Span(LANE, GROUP, start, start + size)
    lo, hi = at, at + length
    if hi <= span.lo or lo >= span.hi:
        return
    before, inside, after = cut(span, lo, hi)
    pieces = [p for p in (before, inside, after) if p is not None]
    assert [seq for p in pieces for seq in range(p.lo, p.hi)] == list(range(span.lo, span.hi))
    assert all(lo <= seq < hi for seq in range(inside.lo, inside.hi))
    assert all(len(p) > 0 for p in pieces)


@given(ranges)
def test_merged_ranges_cover_the_same_places_and_do_not_touch(some: list[LaneRange]) -> None:
    merged = merge_ranges(some, 1 << 30)
    assert places(merged) == places(some)
    assert merged == sorted(merged)
    for (lane, _, hi), (other, lo, _) in pairwise(merged):
        assert lane != other or hi < lo


@given(ranges, st.integers(1, 4))
def test_bound_on_ranges_covers_gaps_but_never_makes_holes(some: list[LaneRange], most: int) -> None:
    merged = merge_ranges(some, most)
    assert places(merged) >= places(some)
    assert len(merged) <= most + len({lane for lane, _, _ in some})


@given(ranges)
def test_lease_knows_what_it_was_granted(some: list[LaneRange]) -> None:
    held = lease(merge_ranges(some, 1 << 30))
    for lane in (1, 2, 3, 4):
        for seq in range(52):
            assert held.was_granted(LaneId(lane), seq) == ((lane, seq) in places(some))
    held.lost, held.granted = held.granted, []
    assert held.was_lost(LANE, 5) == ((1, 5) in places(some))


def test_alone_is_exactly_one_message() -> None:
    assert lease([LaneRange(LANE, 5, 6)]).alone
    assert not lease([LaneRange(LANE, 5, 7)]).alone
    assert not lease([LaneRange(LANE, 5, 6), LaneRange(LaneId(2), 0, 1)]).alone


def test_lease_is_over_at_its_deadline() -> None:
    held = lease([LaneRange(LANE, 0, 1)])
    assert [held.live(now) for now in (0, 99, 100, 101)] == [True, True, False, False]
    held.ended_at = Micros(50)
    assert not held.live(60)


def test_cursor_must_add_up() -> None:
    cursor = Cursor(LANE, GROUP, 1, 0, 0, 10, 20, 1, 2, 3, 4, 0, 0, 0, None, None, 30, 0, 10)
    assert cursor.balanced()
    cursor.acked += 1
    assert not cursor.balanced()


def make_cursor(**fields: Any) -> Cursor:
    known = {"epoch": 1, "first": 0, "next": 10, "held": 3, "acked": 7, "dead": 0, "skipped": 0, "expired": 0}
    counts: dict[str, Any] = {**known, "leased": 1, "exclusive": 1, **fields}
    return Cursor(
        lane=LANE, grp=GROUP, part=1, prio=0, exclusive_owner="me", ready_at=None, head=20, start=2, floor=0, **counts
    )


def test_cursor_counts_each_final_state() -> None:
    cursor = make_cursor(acked=0)
    for state, count in ((State.ACKED, 1), (State.DEAD, 2), (State.EXPIRED, 3)):
        cursor.finish(state, count)
    assert (cursor.acked, cursor.dead, cursor.expired) == (1, 2, 3)
    with pytest.raises(ValueError, match="leased is not a final state"):
        cursor.finish(State.LEASED, 1)


def test_cursor_restart_forgets_counts_and_stays_in_the_lane() -> None:
    for seq, place in ((0, 2), (5, 5), (99, 20)):
        cursor = make_cursor()
        cursor.restart(seq)
        assert (cursor.epoch, cursor.first, cursor.next, cursor.floor) == (2, place, place, place)
        assert cursor.balanced()
        assert (cursor.held, cursor.acked, cursor.leased, cursor.exclusive, cursor.exclusive_owner) == (
            0,
            0,
            0,
            0,
            None,
        )


def test_acks_at_one_instant_keep_the_highest_seq() -> None:
    cursor = make_cursor()
    for last, now in ((5, 100), (3, 100)):
        cursor.ack(State.ACKED, 1, last, Micros(now))
    assert (cursor.last_seq, cursor.settled_at) == (5, 100)
    cursor.note_nacked(2, 1, Micros(101))
    assert (cursor.last_seq, cursor.last_at, cursor.settled_at, cursor.nacked) == (2, 101, 100, 1)


def test_span_is_leased_waiting_or_ready() -> None:
    span = Span(LANE, GROUP, 0, 1, lease=LeaseNo(1), due_at=50)
    assert span.state(100) is State.LEASED
    span.lease = None
    assert [span.state(now) for now in (49, 50)] == [State.WAITING, State.READY]
