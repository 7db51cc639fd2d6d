"""Process-wide SIGTERM handler."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_stops: dict[object, tuple[int, Callable[[], None]]] = {}
"""Stop functions with the process that registered them: a forked child does not call its parent's."""
_users: set[object] = set()
"""Keys of the blocks that need the handler."""


def _handle(*_: object) -> None:
    stops = [stop for process, stop in list(_stops.values()) if process == os.getpid()]
    if not stops:
        # No block runs in this process: SIGTERM ends the process as usual.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    for stop in stops:
        stop()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def install(user: object) -> None:
    """Install the handler for `user`, unless the program has its own handler. Works in the main thread only."""
    _users.add(user)
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.Handlers.SIG_DFL:
        signal.signal(signal.SIGTERM, _handle)


def uninstall(user: object) -> None:
    """Remove the handler when its last user leaves."""
    _users.discard(user)
    if not _users and _in_main_thread() and signal.getsignal(signal.SIGTERM) is _handle:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """While the block runs, SIGTERM calls `stop`. `stop` must not block."""
    key = object()
    _stops[key] = os.getpid(), stop
    install(key)
    try:
        yield
    finally:
        del _stops[key]
        uninstall(key)
