"""Plain topics: what is published goes to whoever listens on this server now. Nothing is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackwise.dialects.amps.subscription import Listener


class Topics:
    """Listeners by topic."""

    def __init__(self) -> None:
        self._listeners: dict[str, dict[Listener, None]] = {}

    def join(self, listener: Listener) -> None:
        self._listeners.setdefault(listener.topic, {})[listener] = None

    def leave(self, listener: Listener) -> None:
        there = self._listeners.get(listener.topic, {})
        there.pop(listener, None)
        if not there:
            self._listeners.pop(listener.topic, None)

    def publish(self, topic: str, body: bytes) -> None:
        for listener in list(self._listeners.get(topic, ())):
            listener.tell(body)
