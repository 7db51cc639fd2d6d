"""When a server is left alone for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ackwise.client.moments import seconds
from ackwise.client.retrying import SHORTEST, Pauses
from ackwise.core.limits import count

PROBE_WITHIN = 5.0
"""How long a server that rested may take to show that it works."""
FAILING = (502, 503, 504)
"""What a server answers that cannot serve now: it counts like no answer."""


@dataclass(frozen=True)
class Resilience:
    """How a client bears with servers: how long it waits between tries, after how many failures in a row a server is
    left alone, and for how many seconds."""

    pauses: Pauses = (1.0, 2.0, 4.0)
    failures: int = 5
    rest: float = 60.0

    def __post_init__(self) -> None:
        for pause in self.pauses:
            seconds(pause, "a pause")
        count(self.failures, "failures")
        seconds(self.rest, "rest")


class Breaker:
    """Closed while the server works. After `failures` in a row it is open for `rest` seconds; then one call may try.

    Failures that come closer together than those of a single caller, who pauses between his tries, are one: a moment's
    trouble is felt by many calls at once.
    """

    def __init__(self, resilience: Resilience, clock: Callable[[], float] = time.monotonic) -> None:
        self._resilience, self._clock = resilience, clock
        self._lock = threading.Lock()
        self._failures = 0
        self._failed_at = float("-inf")
        self._open_until = 0.0

    @property
    def open(self) -> bool:
        return self.on_trial and self._clock() < self._open_until

    @property
    def on_trial(self) -> bool:
        """Whether the server has to show that it works before it is given a call."""
        return self._failures >= self._resilience.failures

    def allows(self) -> bool:
        """Whether a call may be made; asked by whoever then makes it."""
        with self._lock:
            if not self.on_trial:
                return True
            if self._clock() < self._open_until:
                return False
            # One tries; the others wait for what becomes of it, or for its time to be over.
            self._open_until = self._clock() + PROBE_WITHIN
            return True

    def worked(self) -> None:
        with self._lock:
            self._failures = 0

    def failed(self, began: float) -> None:
        """A call failed that was begun then."""
        with self._lock:
            if self.on_trial or began < self._failed_at + self._apart():
                return
            self._failures += 1
            self._failed_at = self._clock()
            self._open_until = self._failed_at + self._resilience.rest

    def failed_trial(self) -> None:
        with self._lock:
            self._open_until = self._clock() + self._resilience.rest

    def _apart(self) -> float:
        """The shortest pause that a single caller makes after the last failure."""
        pauses = self._resilience.pauses
        return SHORTEST * pauses[min(self._failures, len(pauses)) - 1] if self._failures and pauses else 0.0
