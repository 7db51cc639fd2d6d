"""What SIGTERM stops. One answer for the whole process, whoever and however many are at work in it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_stops: dict[object, Callable[[], None]] = {}
_process = os.getpid()


def _answer(*_: object) -> None:
    stops = list(_stops.values())
    if not stops or os.getpid() != _process:
        # Nobody of ours is at work (a forked child is not us): it means what it always means.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    for stop in stops:
        stop()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def answer() -> None:
    """From now on, unless the program has an answer of its own. Only the main thread can see to that."""
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.Handlers.SIG_DFL:
        signal.signal(signal.SIGTERM, _answer)


def leave() -> None:
    """No longer, if nothing is left to stop."""
    if not _stops and _in_main_thread() and signal.getsignal(signal.SIGTERM) is _answer:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM calls `stop`, which must not wait, while what is inside runs."""
    key = object()
    _stops[key] = stop
    answer()
    try:
        yield
    finally:
        del _stops[key]
        leave()
