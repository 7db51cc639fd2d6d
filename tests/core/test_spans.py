"""Cutting spans, joining ranges, and what a lease knows."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ackwise.core.spans import Cursor, Lease, Span, cut, merge_ranges

ranges = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(1, 10)).map(lambda t: (t[0], t[1], t[1] + t[2]))
)


def lease(granted: list[tuple[int, int, int]]) -> Lease:
    return Lease(1, 2, 1, 1, "me", "here", "none", 0, 100, 0, granted)


def places(found: list[tuple[int, int, int]]) -> set[tuple[int, int]]:
    return {(lane, seq) for lane, lo, hi in found for seq in range(lo, hi)}


def test_cut_in_the_middle_gives_three_pieces() -> None:
    span = Span(1, 2, 10, 20, lease=7, fails=2, delivs=3, history="h")
    before, inside, after = cut(span, 13, 16)
    assert before is not None
    assert after is not None
    assert [(s.lo, s.hi) for s in (before, inside, after)] == [(10, 13), (13, 16), (16, 20)]
    assert {(s.lease, s.fails, s.delivs, s.history) for s in (before, inside, after)} == {(7, 2, 3, "h")}


def test_cut_beyond_the_ends_gives_the_whole() -> None:
    before, inside, after = cut(Span(1, 2, 10, 20), 0, 99)
    assert (before, after, inside.lo, inside.hi) == (None, None, 10, 20)


@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 100), st.integers(1, 100))
def test_cut_loses_and_doubles_nothing(start: int, size: int, at: int, length: int) -> None:
    span = Span(1, 1, start, start + size)
    lo, hi = at, at + length
    if hi <= span.lo or lo >= span.hi:
        return
    before, inside, after = cut(span, lo, hi)
    pieces = [p for p in (before, inside, after) if p is not None]
    assert [seq for p in pieces for seq in range(p.lo, p.hi)] == list(range(span.lo, span.hi))
    assert all(lo <= seq < hi for seq in range(inside.lo, inside.hi))
    assert all(len(p) > 0 for p in pieces)


@given(ranges)
def test_merged_ranges_cover_the_same_places_and_do_not_touch(some: list[tuple[int, int, int]]) -> None:
    merged = merge_ranges(some, 1 << 30)
    assert places(merged) == places(some)
    assert merged == sorted(merged)
    for (lane, _, hi), (other, lo, _) in pairwise(merged):
        assert lane != other or hi < lo


@given(ranges, st.integers(1, 4))
def test_a_bound_on_ranges_covers_gaps_but_never_makes_holes(some: list[tuple[int, int, int]], most: int) -> None:
    merged = merge_ranges(some, most)
    assert places(merged) >= places(some)
    assert len(merged) <= most + len({lane for lane, _, _ in some})


@given(ranges)
def test_a_lease_knows_what_it_was_granted(some: list[tuple[int, int, int]]) -> None:
    held = lease(merge_ranges(some, 1 << 30))
    for lane in (1, 2, 3, 4):
        for seq in range(52):
            assert held.was_granted(lane, seq) == ((lane, seq) in places(some))
    held.lost, held.granted = held.granted, []
    assert held.was_lost(1, 5) == ((1, 5) in places(some))


def test_alone_is_exactly_one_message() -> None:
    assert lease([(1, 5, 6)]).alone
    assert not lease([(1, 5, 7)]).alone
    assert not lease([(1, 5, 6), (2, 0, 1)]).alone


def test_a_lease_is_over_at_its_deadline() -> None:
    held = lease([(1, 0, 1)])
    assert [held.live(now) for now in (0, 99, 100, 101)] == [True, True, False, False]
    held.ended_at = 50
    assert not held.live(60)


def test_a_cursor_must_add_up() -> None:
    cursor = Cursor(1, 1, 1, 0, 0, 10, 20, 1, 2, 3, 4, 0, 0, 0, None, None, 30, 0, 10)
    assert cursor.balanced()
    cursor.acked += 1
    assert not cursor.balanced()
