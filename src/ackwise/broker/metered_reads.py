"""Running metered queries: each has a meter and can be cancelled.

A statement first gets 50 ms beside all other queries. A statement that takes longer runs again on separate threads and
connections, so that no other query waits for the long statement.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ackwise.broker.room import WaitingRoom
from ackwise.core.errors import Draining
from ackwise.engine.metered_query import MeteredQuery
from ackwise.engine.statement_meter import Meter, Overrun, free_values
from ackwise.store.port import Store

SHORT_SECONDS = 0.05
LONG_THREADS = 2
MOST_WAITING = 64
TOOK_LONGER = object()
"""The answer of a short attempt that exceeded its time."""


def short_meter(query: MeteredQuery) -> Meter:
    return Meter(query.limits, seconds=SHORT_SECONDS, name="short")


def run_statement(store: Store, query: MeteredQuery, meter: Meter, *, long: bool) -> Any:
    """Run a statement in the store. An exceeded limit raises the statement's error.

    An error keeps no rows of its statement. The caller's frames may refer to the error, so that only a full garbage
    collection would free the rows.
    """
    try:
        return store.ask(query, meter, long=long)
    except Overrun as problem:
        free_values(problem)
        if problem.limit == "short":
            return TOOK_LONGER
        raise query.limit_error(problem) from None
    except Exception as problem:
        free_values(problem)
        raise


class RunningStatements:
    """Meters of the statements that a broker runs now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._meters: set[Meter] = set()
        self._closed = False
        self._room = WaitingRoom(MOST_WAITING, "long statements wait to run")
        """Long statements that run or wait to run."""

    @contextmanager
    def metered(self, meter: Meter) -> Iterator[None]:
        """Register a meter while the block runs. `close` cancels registered meters."""
        with self._lock:
            if self._closed:
                raise Draining("the broker is closed")
            self._meters.add(meter)
        try:
            yield
        finally:
            with self._lock:
                self._meters.discard(meter)

    @contextmanager
    def long(self, meter: Meter, caller: str) -> Iterator[None]:
        """Meter a long statement. Raises `Overloaded` if too many wait, in total or of this caller."""
        with self._room.place(caller), self.metered(meter):
            yield

    def close(self) -> None:
        """Cancel every statement, and refuse new ones."""
        with self._lock:
            self._closed = True
            meters = list(self._meters)
        for meter in meters:
            meter.cancel()
