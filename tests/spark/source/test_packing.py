"""Ranges of lanes dealt out to tasks."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ackwise.spark.source.lane_ranges import SourceRange, assign_ranges
from ackwise.spark.source.log_reader import _limit


def lane_range(lane: int, lo: int, hi: int, attempt: int = 1) -> SourceRange:
    return SourceRange(lane, "q", f"p{lane}", f"id{lane}", 0, lo, hi, attempt)


@st.composite
def some(draw: st.DrawFn) -> list[SourceRange]:
    """Lanes, each with stretches that do not touch; some are empty."""
    found = []
    for lane in range(draw(st.integers(0, 8), "lanes")):
        lo = 0
        for size in draw(st.lists(st.integers(0, 300), max_size=5), "sizes"):
            lo += draw(st.integers(0, 10), "gap")
            found.append(lane_range(lane, lo, lo + size, draw(st.integers(1, 3), "attempt")))
            lo += size
    return found


def messages(ranges: list[SourceRange]) -> Counter[tuple[int, int, int | None]]:
    return Counter((one.lane, seq, one.attempt) for one in ranges for seq in range(one.lo, one.hi))


@given(some(), st.integers(1, 6), st.booleans())
def test_every_message_is_in_one_pile(ranges: list[SourceRange], tasks: int, split: bool) -> None:
    piles = assign_ranges(ranges, tasks, split=split)
    assert len(piles) <= tasks
    assert all(sum(map(len, pile)) for pile in piles)
    assert messages([one for pile in piles for one in pile]) == messages(ranges)
    for pile in piles:
        assert pile == sorted(pile, key=lambda one: (one.lane, one.lo))
        assert all(len(one) for one in pile)


@given(some(), st.integers(1, 6))
def test_lane_stays_whole_without_split(ranges: list[SourceRange], tasks: int) -> None:
    piles = assign_ranges(ranges, tasks, split=False)
    lanes = [{one.lane for one in pile} for pile in piles]
    assert sum(map(len, lanes)) == len(set().union(*lanes))


@given(some(), st.integers(1, 6))
def test_piles_are_of_about_the_same_size(ranges: list[SourceRange], tasks: int) -> None:
    """No task has more than twice a fair share; without split a lane may be more than that by itself."""
    total = sum(map(len, ranges))
    share = -(-total // tasks)
    for pile in assign_ranges(ranges, tasks, split=True):
        assert sum(map(len, pile)) < 2 * share or sum(map(len, pile)) == share
    lanes: Counter[int] = Counter()
    for one in ranges:
        lanes[one.lane] += len(one)
    for pile in assign_ranges(ranges, tasks, split=False):
        assert sum(map(len, pile)) <= max(2 * share, *lanes.values())


@given(some(), st.integers(1, 6), st.booleans())
def test_ranges_are_assigned_to_tasks_deterministically(ranges: list[SourceRange], tasks: int, split: bool) -> None:
    assert assign_ranges(ranges, tasks, split=split) == assign_ranges(ranges, tasks, split=split)


@given(
    st.dictionaries(st.integers(1, 9), st.tuples(st.integers(0, 50), st.integers(0, 80)), max_size=6),
    st.none() | st.integers(1, 200),
)
def test_rows_of_a_batch_are_shared_out_over_lanes(sizes: dict[int, tuple[int, int]], most: int | None) -> None:
    lanes = {lane: (lo, lo + size) for lane, (lo, size) in sizes.items()}
    ends = _limit(lanes, most)
    taken = {lane: ends[lane] - lanes[lane][0] for lane in lanes}
    there = sum(size for _, size in sizes.values())
    assert all(0 <= taken[lane] <= sizes[lane][1] for lane in lanes)
    assert sum(taken.values()) == (there if most is None else min(there, most))
