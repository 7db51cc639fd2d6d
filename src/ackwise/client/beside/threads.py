"""For threads."""

from __future__ import annotations

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from ackwise.core.errors import LeaseLost

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


class Runnable(ABC):
    """Something to be run."""

    @abstractmethod
    def run(self) -> None: ...


def together(work: Callable[[], None], count: int) -> None:
    """So many times at once; what one of them raised is raised when all have ended."""
    if count == 1:
        work()
        return
    with ThreadPoolExecutor(count, thread_name_prefix="ackwise-consumer") as threads:
        for one in [threads.submit(work) for _ in range(count)]:
            one.result()


def kept(work: Callable[[], object], beat: Callable[[], bool], every: float) -> object:
    """Do the work, beating beside it. When a beat answers False `LeaseLost` is raised at the end: a thread cannot be
    stopped."""
    over = threading.Event()
    lost = False

    def beating() -> None:
        nonlocal lost
        while not over.wait(every):
            if not beat():
                lost = True
                return

    thread = threading.Thread(target=beating, name="ackwise-keep-alive", daemon=True)
    thread.start()
    try:
        result = work()
    finally:
        over.set()
        thread.join()
    if lost:
        raise LeaseLost
    return result


@contextmanager
def on_sigterm(stop: Callable[[], object]) -> Iterator[None]:
    """SIGTERM stops what runs inside, unless the program has an answer of its own to it."""
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.Handlers.SIG_DFL
    )
    if ours:
        # In a thread of its own: the one that was interrupted may be in the middle of anything.
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop, name="ackwise-drain").start())
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
