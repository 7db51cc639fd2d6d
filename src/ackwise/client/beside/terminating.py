"""What SIGTERM stops. One answer for the whole process, whoever and however many are at work in it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_stops: dict[object, tuple[int, Callable[[], None]]] = {}
"""What to call, and in which process: a forked child is another one."""
_waiting: set[object] = set()
"""Whoever wants an answer."""


def _answer(*_: object) -> None:
    stops = [stop for process, stop in list(_stops.values()) if process == os.getpid()]
    if not stops:
        # Nobody of ours is at work: it means what it always means.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    for stop in stops:
        stop()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def answer(who: object) -> None:
    """From now on, unless the program has an answer of its own. Only the main thread can see to that."""
    _waiting.add(who)
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.Handlers.SIG_DFL:
        signal.signal(signal.SIGTERM, _answer)


def leave(who: object) -> None:
    """No longer, when nobody else wants it."""
    _waiting.discard(who)
    if not _waiting and _in_main_thread() and signal.getsignal(signal.SIGTERM) is _answer:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM calls `stop`, which must not wait, while what is inside runs."""
    key = object()
    _stops[key] = os.getpid(), stop
    answer(key)
    try:
        yield
    finally:
        del _stops[key]
        leave(key)
