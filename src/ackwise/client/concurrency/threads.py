"""Concurrency primitives for threads: the same names as on asyncio, where `Async` is left out."""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from ackwise.client.concurrency import sigterm
from ackwise.core.errors import LeaseLost

Lock = threading.Lock


class Signal:
    """Event that stays set until it is cleared. Setting it wakes every waiter."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds. Returns False if the time is over and the signal is not set."""
        return self._event.wait(timeout)


OneShotEvent = threading.Event
"""Event for one waiter that is set at most once."""


class Worker:
    """Background daemon thread."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Do nothing: a thread cannot be cancelled."""

    def join(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the thread's end. A thread that joins itself returns at once."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)


def call(function: Callable[..., object], *arguments: object) -> object:
    """Call a user's function."""
    return function(*arguments)


def yield_control() -> None:
    """Do nothing: other threads run by themselves."""


def _end(work: Callable[[], object], ends: queue.SimpleQueue[BaseException | None]) -> None:
    try:
        work()
    except BaseException as problem:
        ends.put(problem)
    else:
        ends.put(None)


def run_to_completion(work: Callable[[], None]) -> None:
    """Run `work`: a thread cannot be cancelled."""
    work()


Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Coalescer(Generic[Item, Answer]):
    """Sends each call in a request of its own: threads share no event-loop tick."""

    def __init__(self, send: Callable[[list[Item]], list[Answer]]) -> None:
        self._send = send

    def submit(self, item: Item) -> Answer:
        (answer,) = self._send([item])
        return answer


class FunctionRunner:
    """Runs users' functions in the calling thread."""

    def call(self, cancels: Callable[[], bool], function: Callable[..., object], *arguments: object) -> object:
        return function(*arguments)

    def wait_for_threads(self, over: Callable[[], bool]) -> bool:
        """Returns True at once: the function of a worker has always returned before its next message."""
        return True


class Runnable(ABC):
    """An object with a `run` method."""

    @abstractmethod
    def run(self) -> None: ...


def run_workers(work: Callable[[], None], count: int, stop: Callable[[], None], busy: Callable[[], bool]) -> None:
    """Run `count` copies of `work` in threads.

    The first error, or a KeyboardInterrupt, calls `stop`. `run_workers` raises it as soon as `busy()` is false: idle
    workers need no waiting.
    """
    if count == 1:
        work()
        return
    ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    for number in range(count):
        threading.Thread(target=_end, args=(work, ends), name=f"ackwise-consumer-{number}", daemon=True).start()
    try:
        for _ in range(count):
            problem = ends.get()
            if problem is not None:
                raise problem
    except BaseException:
        stop()
        while busy():
            time.sleep(0.01)
        raise


CANCEL_SECONDS = 0.0
"""Seconds that cancelled work has to end: none, because a thread cannot be cancelled."""


class LeaseGuard:
    """Runs work under a lease. A thread cannot be stopped: after a loss, `check` raises `LeaseLost` at its end."""

    def __init__(self, has_expired: Callable[[], bool] = lambda: False) -> None:
        self._lost, self._has_expired = False, has_expired

    @property
    def lost(self) -> bool:
        return self._lost or self._has_expired()

    def cancels(self) -> bool:
        return False

    def lose(self) -> None:
        self._lost = True

    def check(self) -> None:
        """Raise `LeaseLost` if the lease was lost."""
        if self.lost:
            raise LeaseLost

    def run(self, work: Callable[[], object]) -> None:
        work()


@contextmanager
def on_sigterm(stop: Callable[[], object]) -> Iterator[None]:
    """While the block runs, SIGTERM calls `stop`, unless the program has its own SIGTERM handler."""
    # `stop` gets a new thread: the interrupted main thread may hold any lock.
    with sigterm.stopping(lambda: threading.Thread(target=stop, name="ackwise-drain").start()):
        yield
