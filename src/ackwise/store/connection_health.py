"""Emits the events of connections that break and work again."""

from __future__ import annotations

import time

from ackwise.core.events import ConnectionLost, ConnectionRestored, EventPort


class ConnectionHealth:
    """Whether the connections to one database work."""

    def __init__(self, where: str, events: EventPort) -> None:
        self._where, self._events = where, events
        self._lost_at: float | None = None

    def note_lost(self, problem: Exception) -> None:
        """Emit an event for the first of the connections that break together."""
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            if self._events.listening:
                self._events.emit(ConnectionLost(self._where, " ".join(str(problem).split())))

    def note_connected(self) -> None:
        """Emit an event for the first connection that works again."""
        lost_at, self._lost_at = self._lost_at, None
        if lost_at is not None and self._events.listening:
            self._events.emit(ConnectionRestored(self._where, time.monotonic() - lost_at))
