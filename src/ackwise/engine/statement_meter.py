"""Meters count the time, rows and bytes of a statement, and stop the statement at its limits."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ackwise.engine.statement_limits import DEFAULT_LIMITS, StatementLimits, weight

WRITER_SECONDS = 0.25
"""A metered command holds the writer at most this long."""


class Overrun(Exception):
    """A statement exceeded a limit. No rule of the language may catch it: it ends the command."""

    def __init__(self, limit: str, value: float) -> None:
        super().__init__(limit, value)
        self.limit, self.value = limit, value


class Cancelled(Overrun):
    """The caller left, or the broker closes."""

    def __init__(self) -> None:
        super().__init__("cancelled", 0)


def free_values(problem: BaseException) -> None:
    """Clear the local values of the frames that an error came through. They hold the rows that a statement has read."""
    chain: BaseException | None = problem
    while chain is not None:
        traceback.clear_frames(chain.__traceback__)
        chain = chain.__context__


class Meter:
    """Counts what one statement uses. `check` and `row` raise `Overrun` when a limit is exceeded."""

    __slots__ = (
        "_bytes",
        "_clock",
        "_interrupt",
        "_lock",
        "_made",
        "_most_bytes",
        "_most_rows",
        "_rows",
        "_seconds",
        "cancelled",
        "changes",
        "deadline",
        "limits",
        "name",
    )

    def __init__(
        self,
        limits: StatementLimits = DEFAULT_LIMITS,
        *,
        seconds: float | None = None,
        rows: int | None = None,
        name: str = "seconds",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`seconds` and `rows` lower the limits, never raise them. `name` is the name of `seconds` in errors."""
        self._clock = clock
        self.limits, self.name = limits, "seconds"
        self._seconds, self._most_rows, self._most_bytes = limits.seconds, limits.rows, limits.bytes
        self.changes = limits.changes
        if seconds is not None and seconds < limits.seconds:
            self._seconds, self.name = seconds, name
        if rows is not None and rows < limits.rows:
            self._most_rows = rows
        self.deadline = self._clock() + self._seconds
        self.cancelled = False
        self._rows = self._bytes = self._made = 0
        self._lock = threading.Lock()
        self._interrupt: Callable[[], None] | None = None

    def begin(self) -> None:
        """Count the seconds from now on: the time that the statement waited does not count."""
        if self.cancelled:
            raise Cancelled
        self.deadline = self._clock() + self._seconds

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - self._clock()

    def is_over(self) -> bool:
        """Whether the statement has to stop now. SQLite calls this method during a statement."""
        return self.cancelled or self._clock() >= self.deadline

    def check(self) -> None:
        if self.cancelled or self._clock() >= self.deadline:
            self.expire()

    def expire(self) -> NoReturn:
        """Raise: the time is up, or the caller left."""
        raise Cancelled if self.cancelled else Overrun(self.name, self._seconds)

    def row(self, row: tuple[Any, ...]) -> None:
        """Count a row that the database returned."""
        self._rows += 1
        size = 0
        for value in row:
            if type(value) is str:
                size += len(value) if value.isascii() else len(value.encode())
            else:
                size += 8
        self._bytes += size
        if self._rows > self._most_rows:
            raise Overrun("rows", self._most_rows)
        if self._bytes > self._most_bytes:
            raise Overrun("bytes", self._most_bytes)

    def made(self, value: Any) -> None:
        """Count a value of the answer: expressions may build and repeat more than the database returned."""
        self._made += 8 if type(value) is int else weight(value)
        if self._made > self._most_bytes:
            raise Overrun("bytes", self._most_bytes)

    # cancelling

    def cancel(self) -> None:
        """Stop the statement, from any thread. This may wait for the database."""
        self.cancelled = True
        with self._lock:
            if self._interrupt is not None:
                self._interrupt()

    @contextmanager
    def interruptible(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """While the block runs, `cancel` calls `interrupt`."""
        with self._lock:
            self._interrupt = interrupt
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._interrupt = None
