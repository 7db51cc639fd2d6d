"""`Clock` protocol, `SystemClock`, `ManualClock`, time since boot. Instants are integer microseconds UTC."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """Two readings of one time: the anchored clock measures durations, the wall clock dates what people read.

    A step of the machine's clock moves the wall clock only. `shift` then changes, and `now` continues.
    """

    def now(self) -> int:
        """The anchored clock. Deadlines, retry delays and long polls are instants of this clock."""
        ...

    def shift(self) -> int:
        """Microseconds that the anchored clock is ahead of the wall clock."""
        ...

    def now_and_shift(self) -> tuple[int, int]:
        """Both at one moment."""
        ...


def wall_now(clock: Clock) -> int:
    """The wall clock's instant."""
    return clock.now() - clock.shift()


class SystemClock:
    """The machine's wall clock. Durations follow its steps."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def shift(self) -> int:
        return 0

    def now_and_shift(self) -> tuple[int, int]:
        return time.time_ns() // 1000, 0


class ManualClock:
    """A clock for tests. It moves only by `advance`, `set` and `step_wall`, and then notifies its listeners."""

    def __init__(self, now: int = 1_700_000_000_000_000) -> None:
        self._now = now
        self._shift = 0
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def now(self) -> int:
        return self._now

    def shift(self) -> int:
        return self._shift

    def now_and_shift(self) -> tuple[int, int]:
        with self._lock:
            return self._now, self._shift

    def advance(self, seconds: float) -> None:
        self.set(self._now + round(seconds * 1_000_000))

    def set(self, now: int) -> None:
        with self._lock:
            self._now = now
        self._notify()

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock only, as an operator or a time server does. Negative steps it back."""
        with self._lock:
            self._shift -= round(seconds * 1_000_000)
        self._notify()

    def on_move(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def _notify(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()


def boot_id() -> str | None:
    """Name of the machine's current boot. None on a system that does not name its boots."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    try:
        return _BOOT_ID.read_text("ascii").strip() or None
    except (OSError, ValueError):
        return None


boottime_ns = partial(time.clock_gettime_ns, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Nanoseconds since boot. They count while the machine sleeps, and no step of the wall clock changes them."""


def boottime() -> int:
    """Microseconds since boot."""
    return boottime_ns() // 1000
