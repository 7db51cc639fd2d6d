"""Bells: whoever waits for something other than messages is told when a commit may have brought it."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Bells:
    """Listeners by name. A listener only notes that it was rung: it is called on whatever thread led the turn."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def listen(self, name: str, listener: Callable[[], None]) -> None:
        self._listeners.setdefault(name, []).append(listener)

    def leave(self, name: str, listener: Callable[[], None]) -> None:
        left = [one for one in self._listeners.get(name, ()) if one != listener]
        if left:
            self._listeners[name] = left
        else:
            self._listeners.pop(name, None)

    def ring(self, names: Iterable[str]) -> None:
        if self._listeners:
            for name in names:
                for listener in list(self._listeners.get(name, ())):
                    listener()

    def ring_all(self) -> None:
        """Something happened elsewhere: everybody looks."""
        self.ring(list(self._listeners))
