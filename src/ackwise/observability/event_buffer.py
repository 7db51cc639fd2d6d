"""Event buffer: keeps the events of a store until a batch step logs and counts them together.

A request only appends its events. Logs and metrics cost the request no more than that.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ackwise.core.events import Event, EventSource, EventStream

MOST_WAITING = 100
"""Maximum number of waiting requests and turns. The thread that adds the last one runs the batch step.

Larger batches are slower: the processor's cache has forgotten the first events when the batch step reads them.
"""

Entry = tuple[float, Event | EventSource]
"""An emitted event, and its time by the machine's clock, in seconds. A turn emits its report."""


class Batch(NamedTuple):
    """Emitted events, in order."""

    entries: list[Entry]
    at: int
    """Instant of the first entry, in microseconds of the store's clock. The other entries count for that instant."""


Consumer = Callable[[Batch], None]


class EventBuffer:
    """Listener that passes events to its consumers in batches. `now` is the store's clock. Thread-safe.

    Something must call `flush`: a timer, and each reader that needs the latest counts. A flush without events passes
    an empty batch, so that consumers notice the time. If a consumer raises, Python prints a warning, and
    the other consumers still run.
    """

    def __init__(self, stream: EventStream, now: Callable[[], int]) -> None:
        self._now = now
        self._waiting: list[Entry] = []
        self._began_at: int | None = None
        """Instant of the first event that waits."""
        self._consumers: list[Consumer] = []
        self._lock = threading.RLock()
        self._flushing = False
        self._passed = 0
        """Entries that were passed on since the last call of `flush_and_count`."""
        self.on_first: Callable[[], object] = lambda: None
        """Called when the first event begins to wait. It must not block."""
        self._unsubscribe = stream.keep(self._keep)

    def add(self, consumer: Consumer) -> None:
        """Pass all further batches to the consumer, too."""
        self._consumers.append(consumer)

    def close(self) -> None:
        """End the subscription and pass the last events on."""
        self._unsubscribe()
        self.flush()

    def _keep(self, event: Event | EventSource) -> None:
        # Runs for every turn and every request: no lock, no other object than the entry.
        waiting = self._waiting
        waiting.append((time.time(), event))
        if self._began_at is None:
            self._began_at = self._now()
            self.on_first()
        elif len(waiting) >= MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Pass the waiting events to the consumers. Waits for a flush in another thread."""
        with self._lock:
            if self._flushing:
                return  # a consumer emitted an event or called back: the next flush takes it
            self._flushing = True
            try:
                self._pass_on()
            finally:
                self._flushing = False

    def flush_and_count(self) -> int:
        """Flush. Returns how many events were passed on since the last call of this method."""
        with self._lock:
            self.flush()
            count, self._passed = self._passed, 0
        return count

    def _pass_on(self) -> None:
        at, self._began_at = self._began_at, None
        # Other threads append meanwhile. Both statements are atomic, so their events stay for the next batch.
        entries = self._waiting[:]
        del self._waiting[: len(entries)]
        self._passed += len(entries)
        batch = Batch(entries, self._now() if at is None else at)
        for consume in self._consumers:
            try:
                consume(batch)
            except Exception as problem:
                name = getattr(consume, "__qualname__", type(consume).__name__)
                # With `python -W error` a warning is an exception.
                with suppress(RuntimeWarning):
                    warnings.warn(f"the event consumer {name} failed: {problem!r}", RuntimeWarning, stacklevel=2)
