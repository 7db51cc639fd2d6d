"""Concurrency primitives on asyncio: signals, workers, timeouts, call coalescing, lease guards."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

from ackwise.client.concurrency import sigterm
from ackwise.core.errors import AckwiseError, LeaseLost

AsyncLock = asyncio.Lock


class AsyncSignal:
    """Event that stays set until it is cleared. Setting it wakes every waiter."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds. Returns False if the time is over and the signal is not set."""
        if timeout is None or self._event.is_set():
            return await self._event.wait()
        try:
            return await asyncio.wait_for(self._event.wait(), timeout)
        except TimeoutError:
            return False


class AsyncOneShotEvent:
    """Event for one waiter that is set at most once."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        await self._future


class AsyncWorker:
    """Background task."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._task = asyncio.get_running_loop().create_task(work(), name=name)

    def cancel(self) -> None:
        self._task.cancel()

    async def join(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the task's end. A task that joins itself returns at once."""
        if self._task is not asyncio.current_task():
            await asyncio.wait([self._task], timeout=timeout)


async def call(function: Callable[..., object], *arguments: object) -> object:
    """Call a user's function and await its result if it is awaitable."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


async def yield_control() -> None:
    """Let other ready tasks run first."""
    await asyncio.sleep(0)


_UNDER_WAY: set[asyncio.Future[None]] = set()


async def run_to_completion(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `work` to its end, even if the calling task is cancelled: other tasks depend on its result."""
    task = asyncio.ensure_future(work())
    _UNDER_WAY.add(task)
    task.add_done_callback(_UNDER_WAY.discard)
    await asyncio.shield(task)


Item = TypeVar("Item")
Answer = TypeVar("Answer")


class AsyncCoalescer(Generic[Item, Answer]):
    """Coalesces calls made in one event-loop tick into one request. Later calls do not wait for that request."""

    def __init__(self, send: Callable[[list[Item]], Coroutine[Any, Any, list[Answer]]]) -> None:
        self._send = send
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def submit(self, item: Item) -> Answer:
        """Send `item` with the next request and return its answer."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._waiting) == 1:
            task = asyncio.create_task(self._send_waiting(), name="ackwise-gathering")
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return await answer

    async def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        wanted = [(item, future) for item, future in waiting if not future.done()]
        try:
            answers = await self._send([item for item, _ in wanted]) if wanted else []
        except BaseException as problem:
            for _, future in wanted:
                if isinstance(problem, Exception) and not future.done():
                    future.set_exception(problem.again() if isinstance(problem, AckwiseError) else problem)
                else:
                    future.cancel()
            if not isinstance(problem, Exception):
                raise
            return
        for (_, future), answer in zip(wanted, answers, strict=True):
            if not future.done():
                future.set_result(answer)


class AsyncFunctionRunner:
    """Runs users' functions: a coroutine function on the event loop, any other function in a daemon thread.

    A daemon thread does not block the event loop, and the process exits without waiting for it.
    """

    def __init__(self) -> None:
        self._abandoned: list[Future[object]] = []
        """Results of abandoned threads: their caller was cancelled, and Python cannot stop a thread."""
        self._blocked_workers = 0

    async def call(self, cancels: Callable[[], bool], function: Callable[..., object], *arguments: object) -> object:
        """Call `function` and return its result.

        If `cancels()` is true, the caller gets the `CancelledError`. Otherwise the function raised it by itself, and
        the call raises RuntimeError. `Task.cancelling()` cannot distinguish the two cases: in Python 3.11 a failed task
        group leaves its task marked as cancelled.
        """
        try:
            if inspect.iscoroutinefunction(function):
                return await function(*arguments)
            result = await self._in_thread(partial(contextvars.copy_context().run, function, *arguments))
            return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError:
            if cancels():
                raise
            raise RuntimeError(f"{getattr(function, '__name__', function)} was cancelled from inside") from None

    async def _in_thread(self, work: Callable[[], object]) -> object:
        end: Future[object] = Future()
        end.set_running_or_notify_cancel()
        threading.Thread(target=_fulfil, args=(end, work), name="ackwise-handler", daemon=True).start()
        try:
            return await asyncio.wrap_future(end)
        finally:
            if not end.done():
                self._abandoned.append(end)

    async def wait_for_threads(self, over: Callable[[], bool]) -> bool:
        """Block one worker for each abandoned thread that still runs. False if `over()` becomes true first."""
        if self._count_abandoned() > self._blocked_workers:
            self._blocked_workers += 1
            try:
                while self._count_abandoned() >= self._blocked_workers:
                    if over():
                        return False
                    await asyncio.sleep(_CHECK_EVERY)
            finally:
                self._blocked_workers -= 1
        return True

    def _count_abandoned(self) -> int:
        self._abandoned = [result for result in self._abandoned if not result.done()]
        return len(self._abandoned)


_CHECK_EVERY = 0.02


def _fulfil(end: Future[object], work: Callable[[], object]) -> None:
    try:
        end.set_result(work())
    except StopIteration as problem:
        # A future cannot carry StopIteration: the awaiting task would never wake.
        error = RuntimeError("the function raised StopIteration")
        error.__cause__ = problem
        end.set_exception(error)
    except BaseException as problem:
        end.set_exception(problem)


class AsyncRunnable(ABC):
    """An object with a `run` method. Awaiting the object calls it."""

    @abstractmethod
    async def run(self) -> None: ...

    def __await__(self) -> Generator[Any, None, None]:
        return self.run().__await__()


async def run_workers(
    work: Callable[[], Coroutine[Any, Any, None]], count: int, stop: Callable[[], None], busy: Callable[[], bool]
) -> None:
    """Run `count` copies of `work` concurrently. The first error cancels all of them and is raised."""
    if count == 1:
        await work()
        return
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(work())
    except BaseExceptionGroup as problems:
        stop()
        raise problems.exceptions[0] from None


CANCEL_SECONDS = 1.0
"""Seconds that cancelled work has to end."""


class AsyncLeaseGuard:
    """Runs work under a lease. When the lease is lost the guard cancels the work and raises `LeaseLost`."""

    def __init__(self, has_expired: Callable[[], bool] = lambda: False) -> None:
        self._lost, self._has_expired = False, has_expired
        self._task: asyncio.Future[object] | None = None
        self._caller: asyncio.Task[Any] | None = None
        self._earlier_cancels = 0
        """The caller's `Task.cancelling()` when the work began."""

    @property
    def lost(self) -> bool:
        return self._lost or self._has_expired()

    def cancels(self) -> bool:
        """Whether the guard or the calling task cancelled the work."""
        return self.lost or self._is_interrupted()

    def _is_interrupted(self) -> bool:
        return self._caller is not None and self._caller.cancelling() > self._earlier_cancels

    def lose(self) -> None:
        """Record that the lease is lost and cancel the work."""
        self._lost = True
        if self._task is not None:
            self._task.cancel()

    def check(self) -> None:
        """Raise `LeaseLost` if the lease was lost: the work may have ignored its cancellation."""
        if self.lost:
            raise LeaseLost

    async def run(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._caller = asyncio.current_task()
        self._earlier_cancels = 0 if self._caller is None else self._caller.cancelling()
        self._task = asyncio.ensure_future(work())
        try:
            await self._task
            if self._is_interrupted():
                # The work swallowed a cancellation that was meant for the caller.
                raise asyncio.CancelledError
        except asyncio.CancelledError:
            if self.lost and not self._is_interrupted():
                raise LeaseLost from None
            raise
        finally:
            self._task.cancel()


@contextmanager
def on_sigterm(stop: Callable[[], Coroutine[Any, Any, object]]) -> Iterator[None]:
    """While the block runs, SIGTERM calls `stop`, unless the program has its own SIGTERM handler."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[object]] = set()
    with sigterm.stopping(lambda: _soon(loop, lambda: tasks.add(loop.create_task(stop())))):
        yield


def _soon(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    with suppress(RuntimeError):
        # The loop may be closed already.
        loop.call_soon_threadsafe(work)
