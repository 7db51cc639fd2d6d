"""Health of the background duties: when each last ran, and why it failed."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from ackwise.core.commands import Command, Sweep


class DutyRun(msgspec.Struct, frozen=True):
    """The last run of a duty. `age` is in seconds. `error` is set if the run failed."""

    duty: str
    age: float
    took: float
    error: str | None = None


class DutyHealth:
    """Records the duties of one broker. Reading it touches no store."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._runs: dict[str, tuple[float, float, str | None]] = {}

    def ran(self, command: Command, took: float, problem: Exception | None = None) -> None:
        duties = command.duties if isinstance(command, Sweep) else (type(command).__name__.lower(),)
        error = None if problem is None else f"{problem}" or type(problem).__name__
        for duty in duties:
            self._runs[duty] = (self._clock(), took, error)

    def runs(self) -> list[DutyRun]:
        """The last run of each duty, in the order of their first runs."""
        now = self._clock()
        return [DutyRun(duty, max(0.0, now - at), took, error) for duty, (at, took, error) in list(self._runs.items())]
