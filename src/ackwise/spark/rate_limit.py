"""Rate limit for redrives. The command line uses it without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ackwise.client import Connection
from ackwise.core.commands import Redrive
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.validation import MAX_BATCH

PAGE = 1000
PAGES_PER_SECOND = 4
"""Pages per second with a rate limit, so that the rate holds within each second."""

Progress = Callable[[int, int], object]
"""Callback with the number done and the total."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Rate limit: at most `rate` per second, evenly. No limit with None."""

    rate: float | None = None
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], object] = time.sleep

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate <= MAX_BATCH:
            raise BadInput(f"rate must be more than 0 and at most {MAX_BATCH} per second, not {self.rate:g}")

    @property
    def page(self) -> int:
        """Number of dead letters per request."""
        return PAGE if self.rate is None else max(1, min(PAGE, int(self.rate / PAGES_PER_SECOND)))

    def before(self, done: int, started: float) -> None:
        """Wait until `done` items since `started` are within the rate."""
        if self.rate is not None:
            early = started + done / self.rate - self.clock()
            if early > 0:
                self.wait(early)


def put_back(
    connection: Connection, ids: Sequence[str], pace: RateLimit, progress: Progress | None = None
) -> dict[str, str]:
    """Redrive dead letters by id. Returns the result of each."""
    results: dict[str, str] = {}
    started = pace.clock()
    for at in range(0, len(ids), pace.page):
        pace.before(at, started)
        try:
            results |= connection.transport.send(Redrive(ids=list(ids[at : at + pace.page]))).results
        except AckwiseError as problem:
            raise AckwiseError(f"{problem} ({at} of {len(ids)} dead letters were put back before)") from problem
        if progress is not None:
            progress(min(at + pace.page, len(ids)), len(ids))
    return results
