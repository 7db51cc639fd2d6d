"""`Clock` protocol, `SystemClock`, `ManualClock`. Instants are integer microseconds UTC."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Source of the current instant."""

    def now(self) -> int: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1000


class ManualClock:
    """A clock for tests. It moves only by `advance` and `set`, and then notifies its listeners."""

    def __init__(self, now: int = 1_700_000_000_000_000) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def now(self) -> int:
        return self._now

    def advance(self, seconds: float) -> None:
        self.set(self._now + round(seconds * 1_000_000))

    def set(self, now: int) -> None:
        with self._lock:
            self._now = now
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def on_move(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)
