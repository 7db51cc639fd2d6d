"""`LaneRange`: messages [lo, hi) of a lane. Merges, joins and searches ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from ackwise.core.ids import LaneId

BEYOND = 1 << 62
"""A seq after every message."""


class LaneRange(NamedTuple):
    """Messages [lo, hi) of a lane."""

    lane: LaneId
    lo: int
    hi: int

    @property
    def size(self) -> int:
        """Number of messages."""
        return self.hi - self.lo


def covers(ranges: Sequence[LaneRange], lane: LaneId, seq: int) -> bool:
    """Whether sorted, disjoint ranges contain a message."""
    at = bisect_right(ranges, (lane, seq, BEYOND)) - 1
    return at >= 0 and ranges[at][0] == lane and ranges[at][1] <= seq < ranges[at][2]


def merge_ranges(ranges: Sequence[LaneRange], most: int) -> list[LaneRange]:
    """Sort ranges and merge those that touch.

    From `most` ranges on, a merged range also covers the gap to the next range of its lane. A bounded list may
    therefore cover too much, but never too little.
    """
    merged: list[LaneRange] = []
    for lane, lo, hi in sorted(ranges):
        if merged and merged[-1].lane == lane and (lo <= merged[-1].hi or len(merged) >= most):
            merged[-1] = LaneRange(lane, merged[-1].lo, max(hi, merged[-1].hi))
        else:
            merged.append(LaneRange(lane, lo, hi))
    return merged


def join_near(ranges: Sequence[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    """Sort ranges [lo, hi) of one lane and join those that lie at most `gap` messages apart."""
    joined: list[tuple[int, int]] = []
    for lo, hi in sorted(ranges):
        if joined and lo - joined[-1][1] <= gap:
            joined[-1] = (joined[-1][0], max(hi, joined[-1][1]))
        else:
            joined.append((lo, hi))
    return joined


def overlaps(ranges: Sequence[tuple[int, int]], lo: int, hi: int) -> list[tuple[int, int]]:
    """The parts of sorted, disjoint ranges [lo, hi) of one lane that lie in [lo, hi)."""
    return [(max(lo, first), min(hi, end)) for first, end in ranges if first < hi and end > lo]


def without(ranges: Sequence[tuple[int, int]], removed: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of sorted, disjoint ranges of one lane that no removed range covers. `removed` is sorted as well."""
    left: list[tuple[int, int]] = []
    for lo, hi in ranges:
        for first, end in overlaps(removed, lo, hi):
            if first > lo:
                left.append((lo, first))
            lo = end
        if lo < hi:
            left.append((lo, hi))
    return left
