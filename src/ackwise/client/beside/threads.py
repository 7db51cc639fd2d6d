"""For threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

Lock = threading.Lock


class Signal:
    """Set until it is cleared; whoever waits is woken."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it was set in time."""
        return self._event.wait(timeout)


class Worker:
    """Runs beside whoever started it."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for its end; a worker does not wait for itself."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)


def call(function: Callable[..., object], *arguments: object) -> object:
    """Call what a user gave."""
    return function(*arguments)
