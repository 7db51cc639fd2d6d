"""`LeasedRange`: the messages of a lease that a settlement names."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ackwise.core.ids import LaneId
from ackwise.core.lane_range import BEYOND, LaneRange
from ackwise.core.spans import Lease


class LeasedRange(msgspec.Struct, frozen=True):
    """Messages [lo, hi) of a lane under a lease. `lane` None means all messages that the lease holds.

    `whole` refuses a settlement unless the lease holds every message of the range. `late` allows it for a lease that
    has expired, until a turn ends the lease.
    """

    lease: Lease
    lane: LaneId | None
    lo: int = 0
    hi: int = BEYOND
    whole: bool = False
    late: bool = False

    def overlaps(self, ranges: Iterable[LaneRange]) -> bool:
        """Whether any of the ranges contains a message of this one."""
        return any(lane == self.lane and lo < self.hi and self.lo < hi for lane, lo, hi in ranges)

    def part(self, lo: int, hi: int) -> LeasedRange:
        """Messages [lo, hi) of the same lane and lease."""
        return LeasedRange(self.lease, self.lane, lo, hi, late=self.late)


NumberedRange = tuple[int, LeasedRange]
"""The number of an entry in its call, and the range that the entry names."""
