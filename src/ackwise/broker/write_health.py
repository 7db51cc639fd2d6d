"""Heartbeat state: when a broker last wrote successfully, and why its last beat failed."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from ackwise.core.errors import AckwiseError

BEAT_EVERY = 2.5
SILENT_AFTER = 10.0
"""Seconds without a successful beat after which a broker counts as unable to write."""


class Health(msgspec.Struct, frozen=True):
    """Whether the broker can write. `error` and `code` are None while it can. `last_write` is an age in seconds."""

    last_write: float | None
    error: str | None = None
    code: str | None = None


class Pulse:
    """Records the beats of one broker. Reading the pulse touches no store, so a stuck disk cannot block it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrote_at: float | None = None
        self._failure: AckwiseError | None = None

    def wrote(self) -> None:
        self._wrote_at, self._failure = self._clock(), None

    def failed(self, problem: Exception) -> None:
        if not isinstance(problem, AckwiseError):
            problem = AckwiseError(f"unexpected {type(problem).__name__}: {problem}")
        self._failure = problem

    def health(self) -> Health:
        """The state now. A failed beat counts at once, a missing beat after `SILENT_AFTER` seconds."""
        age = None if self._wrote_at is None else round(max(0.0, self._clock() - self._wrote_at), 3)
        if self._failure is not None:
            return Health(age, f"the last write failed: {self._failure.message}", self._failure.code)
        if age is None:
            return Health(None, "the server has not written anything yet", "no_write")
        if age > SILENT_AFTER:
            text = f"the last successful write was {age:.0f} seconds ago; check the disk or the database"
            return Health(age, text, "write_overdue")
        return Health(age)
