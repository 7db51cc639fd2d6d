"""For threads."""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from ackwise.client.beside import terminating
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


Once = threading.Event
"""Set once, for one who waits."""


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


def breathe() -> None:
    """Other threads go on by themselves."""


def within(duration: float, work: Callable[[], object]) -> None:
    """Do it, or raise TimeoutError: then it goes on by itself, and nobody hears how it ends."""
    ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    threading.Thread(target=_end, args=(work, ends), name="ackwise-within", daemon=True).start()
    try:
        problem = ends.get(timeout=duration)
    except queue.Empty:
        raise TimeoutError from None
    if problem is not None:
        raise problem


def _end(work: Callable[[], object], ends: queue.SimpleQueue[BaseException | None]) -> None:
    try:
        work()
    except BaseException as problem:
        ends.put(problem)
    else:
        ends.put(None)


def to_its_end(work: Callable[[], None]) -> None:
    """Nobody cancels a thread."""
    work()


Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Gathering(Generic[Item, Answer]):
    """A thread asks for itself."""

    def __init__(self, send: Callable[[list[Item]], list[Answer]]) -> None:
        self._send = send

    def ask(self, item: Item) -> Answer:
        (answer,) = self._send([item])
        return answer


class Hands:
    """Run what a user gave."""

    def call(self, cancels: Callable[[], bool], function: Callable[..., object], *arguments: object) -> object:
        return function(*arguments)

    def rested(self, over: Callable[[], bool]) -> bool:
        """Who works here takes nothing more before it has ended."""
        return True


class Runnable(ABC):
    """Something to be run."""

    @abstractmethod
    def run(self) -> None: ...


def together(work: Callable[[], None], count: int, stop: Callable[[], None], busy: Callable[[], bool]) -> None:
    """So many times at once. What the first of them raises, or an interrupt, stops them all, and is raised when none of
    them is busy any more: those that only wait for work need not be waited for."""
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


LETS_GO_WITHIN = 0.0
"""A thread cannot be stopped, so nobody waits for it."""


class Watched:
    """Work under a lease. A thread cannot be stopped: when the lease is lost it is told so at its end."""

    def __init__(self) -> None:
        self._lost = False
        self._gone: Callable[[], bool] = lambda: False

    @property
    def lost(self) -> bool:
        return self._lost or self._gone()

    def cancels(self) -> bool:
        return False

    def lose(self) -> None:
        self._lost = True

    def check(self) -> None:
        """Raise if it was lost."""
        if self.lost:
            raise LeaseLost

    def run(
        self, work: Callable[[], object], beat: Callable[[], bool] | None, gone: Callable[[], bool], every: float
    ) -> None:
        """Do the work, beating beside it. It is lost when a beat answers False, or when it is `gone`."""
        if beat is None:
            work()
            return
        self._gone = gone
        over = threading.Event()
        beats = threading.Thread(target=self._beating, args=(beat, over, every), name="ackwise-keep-alive", daemon=True)
        beats.start()
        try:
            work()
        finally:
            over.set()
            # One that has no answer yet is not waited for.
            beats.join(_ANSWERS_WITHIN)

    def _beating(self, beat: Callable[[], bool], over: threading.Event, every: float) -> None:
        while not over.wait(every):
            if not beat():
                self.lose()
                return


_ANSWERS_WITHIN = 0.5


@contextmanager
def on_sigterm(stop: Callable[[], object]) -> Iterator[None]:
    """SIGTERM stops what runs inside, unless the program has an answer of its own to it."""
    # In a thread of its own: the one that was interrupted may be in the middle of anything.
    with terminating.stopping(lambda: threading.Thread(target=stop, name="ackwise-drain").start()):
        yield
