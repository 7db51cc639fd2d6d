"""For tasks of one event loop."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from ackwise.core.errors import LeaseLost

AsyncLock = asyncio.Lock


class AsyncSignal:
    """Set until it is cleared; whoever waits is woken."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, timeout: float | None = None) -> bool:
        """Whether it was set in time."""
        if timeout is None or self._event.is_set():
            return await self._event.wait()
        try:
            return await asyncio.wait_for(self._event.wait(), timeout)
        except TimeoutError:
            return False


class AsyncWorker:
    """Runs beside whoever started it."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._task = asyncio.get_running_loop().create_task(work(), name=name)

    async def join(self, timeout: float) -> None:
        """Wait for its end; a worker does not wait for itself."""
        if self._task is not asyncio.current_task():
            await asyncio.wait([self._task], timeout=timeout)


async def call(function: Callable[..., object], *arguments: object) -> object:
    """Call what a user gave: a function, or a coroutine function."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


class AsyncRunnable(ABC):
    """Something to be run: awaiting it runs it."""

    @abstractmethod
    async def run(self) -> None: ...

    def __await__(self) -> Generator[Any, None, None]:
        return self.run().__await__()


async def together(work: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    """So many times at once; what the first of them raises ends them all."""
    if count == 1:
        await work()
        return
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(work())


async def kept(
    work: Callable[[], Coroutine[Any, Any, object]], beat: Callable[[], Coroutine[Any, Any, bool]], every: float
) -> object:
    """Do the work, beating beside it. A beat that answers False cancels it, and `LeaseLost` is raised."""
    task = asyncio.ensure_future(work())
    lost = False

    async def beating() -> None:
        nonlocal lost
        while not lost:
            await asyncio.sleep(every)
            lost = not await beat()
        task.cancel()

    beats = asyncio.create_task(beating())
    try:
        return await task
    except asyncio.CancelledError:
        if lost:
            raise LeaseLost from None
        raise
    finally:
        beats.cancel()
        if not task.done():
            task.cancel()
        await asyncio.gather(beats, return_exceptions=True)


@contextmanager
def on_sigterm(stop: Callable[[], Coroutine[Any, Any, object]]) -> Iterator[None]:
    """SIGTERM stops what runs inside, unless the program has an answer of its own to it."""
    loop = asyncio.get_running_loop()
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.Handlers.SIG_DFL
    )
    tasks: set[asyncio.Task[object]] = set()
    if ours:
        loop.add_signal_handler(signal.SIGTERM, lambda: tasks.add(loop.create_task(stop())))
    try:
        yield
    finally:
        if ours:
            loop.remove_signal_handler(signal.SIGTERM)
