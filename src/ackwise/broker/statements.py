"""Running read statements of the graph: each has a meter and can be cancelled.

A statement first gets 50 ms beside all other queries. A statement that takes longer runs again on separate threads and
connections, so that no other query waits for the long statement.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ackwise.core.errors import Draining, Overloaded
from ackwise.core.graph.commands import AskGraph, FindGraph
from ackwise.store.meter import Meter, Overrun
from ackwise.store.port import Store

SHORT_SECONDS = 0.05
LONG_AT_ONCE = 2
MOST_WAITING = 64
LONGER = object()
"""The answer of a short attempt that ran out of time."""


def short_meter(query: AskGraph) -> Meter:
    return Meter(query.limits, seconds=SHORT_SECONDS, name="short")


def look(store: Store, query: AskGraph | FindGraph, meter: Meter, *, long: bool) -> Any:
    """Ask the store. An exceeded limit becomes the caller's error."""
    try:
        return store.ask_graph(query, meter, long=long)
    except Overrun as problem:
        if problem.limit == "short":
            return LONGER
        raise problem.told() from None


class Statements:
    """Meters of the statements that a broker runs now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._meters: set[Meter] = set()
        self._closed = False
        self.waiting = 0
        """Long statements that run, or wait to run."""

    @contextmanager
    def metered(self, meter: Meter) -> Iterator[None]:
        """While the block runs, `close` cancels the meter."""
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
    def long(self, meter: Meter) -> Iterator[None]:
        """Meter a long statement. Raises `Overloaded` when too many long statements wait."""
        with self._lock:
            if self.waiting >= MOST_WAITING:
                raise Overloaded(f"{MOST_WAITING} long statements wait to run; try again in a moment")
            self.waiting += 1
        try:
            with self.metered(meter):
                yield
        finally:
            with self._lock:
                self.waiting -= 1

    def close(self) -> None:
        """Cancel every statement, and refuse new ones."""
        with self._lock:
            self._closed = True
            meters = list(self._meters)
        for meter in meters:
            meter.cancel()
