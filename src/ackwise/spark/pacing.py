"""Dead letters go back page by page, no faster than asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ackwise.client import Connection
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.limits import MAX_BATCH

PAGE = 1000
PAGES_PER_SECOND = 4
"""With a rate, pages are small enough for it to be kept within a second."""

Progress = Callable[[int, int], object]
"""Told how many of how many are done."""


@dataclass(frozen=True, slots=True)
class Pace:
    """At most `rate` per second, evenly; without one as fast as it goes."""

    rate: float | None = None
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], object] = time.sleep

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate <= MAX_BATCH:
            raise BadInput(f"rate must be more than 0 and at most {MAX_BATCH} per second, not {self.rate:g}")

    @property
    def page(self) -> int:
        """How many at once."""
        return PAGE if self.rate is None else max(1, min(PAGE, int(self.rate / PAGES_PER_SECOND)))

    def before(self, done: int, started: float) -> None:
        """Wait until `done` since `started` were not too many."""
        if self.rate is not None:
            early = started + done / self.rate - self.clock()
            if early > 0:
                self.wait(early)


def put_back(
    connection: Connection, ids: Sequence[str], pace: Pace, progress: Progress | None = None
) -> dict[str, str]:
    """Redrive them; what became of each."""
    results: dict[str, str] = {}
    started = pace.clock()
    for at in range(0, len(ids), pace.page):
        pace.before(at, started)
        try:
            results |= connection.redrive(ids[at : at + pace.page]).results
        except AckwiseError as problem:
            raise AckwiseError(f"{problem} (before that {at} of {len(ids)} dead letters were put back)") from problem
        if progress is not None:
            progress(min(at + pace.page, len(ids)), len(ids))
    return results
