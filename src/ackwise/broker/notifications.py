"""Listeners: callbacks that the broker calls after a commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

log = logging.getLogger("ackwise")


class Listeners:
    """Callbacks by name. The thread that leads the turn calls them, so a callback must return at once."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self.callbacks)

    def add(self, name: str, callback: Callable[[], None]) -> None:
        self.callbacks.setdefault(name, []).append(callback)

    def remove(self, name: str, callback: Callable[[], None]) -> None:
        rest = [other for other in self.callbacks.get(name, ()) if other != callback]
        if rest:
            self.callbacks[name] = rest
        else:
            self.callbacks.pop(name, None)

    def notify(self, names: Iterable[str]) -> None:
        """Call the callbacks of these names. A callback that fails does not disturb the others."""
        for name in names:
            for callback in list(self.callbacks.get(name, ())):
                try:
                    callback()
                except Exception:
                    log.exception("a listener of %r failed", name)

    def notify_all(self) -> None:
        """Call every callback, because another process may have committed to any queue."""
        self.notify(list(self.callbacks))
