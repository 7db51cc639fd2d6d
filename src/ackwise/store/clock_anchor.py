"""Anchored clock: durations that a step of the wall clock does not change, shared by all processes of a store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from ackwise.clock import SystemClock, boot_id, boottime, boottime_ns
from ackwise.core.validation import MICROS

STEP = 10_000
"""The wall clock counts as stepped if it moved against the anchored clock by more than this, in microseconds."""
RECORD_EVERY = 10 * MICROS
"""How often a store records the anchored instant. A boot continues from the last one."""
TOLERANCE = MICROS // 2
"""Steps of a database's clock up to this size pass unnoticed: leases follow them."""
DRIFT = 2000
"""The clocks of two machines may drift apart by one part in this many."""
_TRIES = 3


class Anchor(NamedTuple):
    """One row of a store: which anchored instant belongs to which time since boot, and when it was last recorded."""

    boot: str
    boottime: int
    anchored: int
    """The anchored instant at `boottime`."""
    shift: int
    """Microseconds that the anchored clock was ahead of the wall clock when the row was written."""
    seen: int
    """The last recorded anchored instant."""


class Reading(NamedTuple):
    """The machine's clocks at one moment."""

    boot: str
    boottime: int
    wall: int


def read_machine() -> Reading | None:
    """The machine's clocks. None on a system that does not name its boots."""
    boot = boot_id()
    return None if boot is None else Reading(boot, boottime(), SystemClock().now())


def anchor_for(row: Anchor | None, reading: Reading) -> tuple[Anchor, int]:
    """The anchor for this boot, and the downtime that it counts.

    - The row of this boot stays: all processes of a boot share it.
    - A store without a row starts at the wall clock.
    - After another boot the clock continues at the last recorded instant plus the downtime. Only the wall clock knows
      the downtime. A wall clock that went back meanwhile counts none.
    """
    if row is None:
        return Anchor(reading.boot, reading.boottime, reading.wall, 0, reading.wall), 0
    if row.boot == reading.boot:
        if row.anchored + reading.boottime - row.boottime + MICROS >= row.seen:
            return row, 0
        # The machine went back to an earlier moment of this boot, for example to a snapshot. The clock does not.
        return Anchor(reading.boot, reading.boottime, row.seen, row.seen - reading.wall, row.seen), 0
    downtime = max(0, reading.wall - (row.seen - row.shift))
    anchored = row.seen + downtime
    return Anchor(reading.boot, reading.boottime, anchored, anchored - reading.wall, anchored), downtime


class AnchoredClock:
    """The clock of a store on this machine. Until `follow` it is the wall clock.

    Every turn reads it, so it calls the two clocks of the system directly. They count nanoseconds.
    """

    def __init__(self, wall: Callable[[], int] = time.time_ns, steady: Callable[[], int] = boottime_ns) -> None:
        self._wall, self._steady = wall, steady
        self._offset: int | None = None
        """Anchored instant minus time since boot."""
        self._shift = 0

    def follow(self, anchor: Anchor) -> None:
        self._offset, self._shift = anchor.anchored - anchor.boottime, anchor.shift

    def now(self) -> int:
        return self._wall() // 1000 if self._offset is None else self._steady() // 1000 + self._offset

    def shift(self) -> int:
        return self.now_and_shift()[1]

    def now_and_shift(self) -> tuple[int, int]:
        """Measure the shift. It keeps its value unless the wall clock stepped, so that instants look the same twice.

        NTP slews both clocks alike, so only a step changes the difference.
        """
        if self._offset is None:
            return self._wall() // 1000, 0
        for _ in range(_TRIES):
            before, wall, after = self._steady() // 1000, self._wall() // 1000, self._steady() // 1000
            if after - before < STEP:  # otherwise the thread was interrupted between two readings
                measured = before + self._offset - wall
                if abs(measured - self._shift) > STEP:
                    self._shift = measured
                break
        return after + self._offset, self._shift


class Measurement(NamedTuple):
    """A database's clock, read between two readings of this machine's time since boot."""

    wall: int
    shift: int
    steps: int
    """How many steps of the database's clock the brokers have corrected."""
    before: int
    after: int

    @property
    def anchored(self) -> int:
        return self.wall + self.shift

    @property
    def lowest(self) -> int:
        """The least offset of the anchored clock to this machine's time since boot."""
        return self.anchored - self.after

    @property
    def highest(self) -> int:
        return self.anchored - self.before


class StepDetector:
    """Compares a database's clock with this machine's time since boot. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Measurement | None = None
        self._lowest = self._highest = 0

    @property
    def last(self) -> Measurement | None:
        return self._last

    def jump(self, measured: Measurement) -> int:
        """How far the anchored clock jumped since the last measurement: 0 unless the database's clock stepped.

        A jump after another broker's correction is 0 as well: that broker saw the step first. Fewer corrections than
        before mean that another database took over without the last ones: its jump counts.
        """
        with self._lock:
            last = self._last
            if last is None or measured.steps > last.steps:
                return 0
            slack = TOLERANCE + abs(measured.after - last.after) // DRIFT
            if self._lowest - slack <= measured.highest and measured.lowest <= self._highest + slack:
                return 0
            return (measured.lowest + measured.highest - self._lowest - self._highest) // 2

    def accept(self, measured: Measurement) -> None:
        """Use a measurement for the next comparison. Precise earlier ones stay in use while they agree with it."""
        with self._lock:
            last = self._last
            if last is not None and measured.after < last.after and measured.steps <= last.steps:
                return  # a reading of another thread, overtaken by a newer one
            low, high = max(self._lowest, measured.lowest), min(self._highest, measured.highest)
            if last is None or last.steps != measured.steps or low > high:
                low, high = measured.lowest, measured.highest
            self._last, self._lowest, self._highest = measured, low, high
