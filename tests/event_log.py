"""Events of a store as tests hear them: wait for one instead of sleeping."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TypeVar

from ackwise.core.events import Event, EventStream
from tests.patience import PATIENCE

E = TypeVar("E", bound=Event)


class EventLog:
    """Collects the events of a stream. `wait_for` returns the first event of a kind, also one that came before."""

    def __init__(self, stream: EventStream) -> None:
        self._changed = threading.Condition()
        self.events: list[Event] = []
        self._stop = stream.subscribe(self._add)

    def _add(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, kind: type[E]) -> list[E]:
        with self._changed:
            return [event for event in self.events if isinstance(event, kind)]

    def wait_for(self, kind: type[E], count: int = 1) -> E:
        """Wait until `count` events of a kind have come. Returns the last of them."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.of(kind)) >= count, PATIENCE)
        assert came, (
            f"no {kind.__name__} in {PATIENCE} seconds; heard: {[type(event).__name__ for event in self.events]}"
        )
        return self.of(kind)[count - 1]

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
