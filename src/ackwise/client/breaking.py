"""When a server is left alone for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ackwise.client.retrying import Pauses

FAILING = (502, 503, 504)
"""What a server answers that cannot serve now: it counts like no answer."""


@dataclass(frozen=True)
class Resilience:
    """How a client bears with servers: how long it waits between tries, after how many failures in a row a server is
    left alone, and for how many seconds."""

    pauses: Pauses = (1.0, 2.0, 4.0)
    failures: int = 5
    rest: float = 60.0


class Breaker:
    """Closed while the server works. After `failures` in a row it is open for `rest` seconds; then one call may try."""

    def __init__(self, failures: int, rest: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._rest, self._clock = failures, rest, clock
        self._lock = threading.Lock()
        self._failures = 0
        self._open_until = 0.0

    @property
    def open(self) -> bool:
        return self._failures >= self._most and self._clock() < self._open_until

    def allows(self) -> bool:
        """Whether a call may be made; asked by whoever then makes it."""
        with self._lock:
            if self._failures < self._most:
                return True
            if self._clock() < self._open_until:
                return False
            # One tries; the others wait for what becomes of it.
            self._open_until = self._clock() + self._rest
            return True

    def worked(self) -> None:
        with self._lock:
            self._failures = 0

    def failed(self) -> None:
        with self._lock:
            self._failures += 1
            self._open_until = self._clock() + self._rest
