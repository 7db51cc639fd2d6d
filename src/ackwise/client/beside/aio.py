"""For tasks of one event loop."""

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

from ackwise.client.beside import terminating
from ackwise.core.errors import AckwiseError, LeaseLost

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


class AsyncOnce:
    """Set once, for one who waits."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        await self._future


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


async def breathe() -> None:
    """Whoever is ready to go on does so first."""
    await asyncio.sleep(0)


async def within(duration: float, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Do it, or raise TimeoutError."""
    async with asyncio.timeout(duration):
        await work()


_UNDER_WAY: set[asyncio.Future[None]] = set()


async def to_its_end(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Others depend on it: it goes on when whoever waits for it is cancelled."""
    task = asyncio.ensure_future(work())
    _UNDER_WAY.add(task)
    task.add_done_callback(_UNDER_WAY.discard)
    await asyncio.shield(task)


Item = TypeVar("Item")
Answer = TypeVar("Answer")


class AsyncGathering(Generic[Item, Answer]):
    """What is asked in one breath is sent together. One that is not answered holds up nobody who asks later."""

    def __init__(self, send: Callable[[list[Item]], Coroutine[Any, Any, list[Answer]]]) -> None:
        self._send = send
        self._asked: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def ask(self, item: Item) -> Answer:
        mine: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked.append((item, mine))
        if len(self._asked) == 1:
            task = asyncio.create_task(self._send_asked(), name="ackwise-gathering")
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return await mine

    async def _send_asked(self) -> None:
        together, self._asked = self._asked, []
        wanted = [(item, future) for item, future in together if not future.done()]
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
        for (_, future), one in zip(wanted, answers, strict=True):
            if not future.done():
                future.set_result(one)


class AsyncHands:
    """Run what a user gave: coroutine functions here, any other function in a thread of its own, so that nobody else
    has to wait for it. A process that ends does not wait for these threads."""

    def __init__(self) -> None:
        self._left: list[Future[object]] = []
        """Threads that nobody waits for any more, and that nobody can stop."""
        self._resting = 0

    async def call(self, cancels: Callable[[], bool], function: Callable[..., object], *arguments: object) -> object:
        """`cancels`: whether we were cancelled, and not only something that was awaited inside. Our task does not tell:
        a task group of Python 3.11 that failed leaves it marked as cancelled."""
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
                self._left.append(end)

    async def rested(self, over: Callable[[], bool]) -> bool:
        """For each thread that was left one of the workers waits before it takes more. False if it is `over` before."""
        if self._still_left() > self._resting:
            self._resting += 1
            try:
                while self._still_left() >= self._resting:
                    if over():
                        return False
                    await asyncio.sleep(_LOOKS_EVERY)
            finally:
                self._resting -= 1
        return True

    def _still_left(self) -> int:
        self._left = [one for one in self._left if not one.done()]
        return len(self._left)


_LOOKS_EVERY = 0.02


def _fulfil(end: Future[object], work: Callable[[], object]) -> None:
    try:
        end.set_result(work())
    except StopIteration as problem:
        # No future can carry it: whoever awaits would wait for ever.
        error = RuntimeError("the function raised StopIteration")
        error.__cause__ = problem
        end.set_exception(error)
    except BaseException as problem:
        end.set_exception(problem)


class AsyncRunnable(ABC):
    """Something to be run: awaiting it runs it."""

    @abstractmethod
    async def run(self) -> None: ...

    def __await__(self) -> Generator[Any, None, None]:
        return self.run().__await__()


async def together(
    work: Callable[[], Coroutine[Any, Any, None]], count: int, stop: Callable[[], None], busy: Callable[[], bool]
) -> None:
    """So many times at once; what the first of them raises ends them all, and is raised."""
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


LETS_GO_WITHIN = 1.0
"""How long work that is cancelled may take to end."""


class AsyncWatched:
    """Work under a lease. When that is lost the work is cancelled, and `LeaseLost` raised."""

    def __init__(self) -> None:
        self.lost = False
        self._task: asyncio.Future[object] | None = None
        self._caller: asyncio.Task[Any] | None = None
        self._before = 0
        """How often the caller had been cancelled, or marked so, before."""

    def cancels(self) -> bool:
        """Whether the work was cancelled, by us or with whoever called."""
        return self.lost or self._is_interrupted()

    def _is_interrupted(self) -> bool:
        return self._caller is not None and self._caller.cancelling() > self._before

    def lose(self) -> None:
        self.lost = True
        if self._task is not None:
            self._task.cancel()

    def check(self) -> None:
        """Raise if it was lost: work may not have taken notice."""
        if self.lost:
            raise LeaseLost

    async def run(
        self,
        work: Callable[[], Coroutine[Any, Any, object]],
        beat: Callable[[], Coroutine[Any, Any, bool]] | None,
        gone: Callable[[], bool],
        every: float,
    ) -> None:
        """Do the work, beating beside it. It is lost when a beat answers False, or when it is `gone`, even if a beat
        has no answer yet."""
        self._caller = asyncio.current_task()
        self._before = 0 if self._caller is None else self._caller.cancelling()
        self._task = asyncio.ensure_future(work())
        beats = None if beat is None else asyncio.create_task(self._beating(beat, gone, every))
        try:
            await self._task
            if self._is_interrupted():
                # The work kept it to itself: it was meant for us all the same.
                raise asyncio.CancelledError
        except asyncio.CancelledError:
            if self.lost and not self._is_interrupted():
                raise LeaseLost from None
            raise
        finally:
            self._task.cancel()
            if beats is not None:
                beats.cancel()
                await asyncio.gather(beats, return_exceptions=True)

    async def _beating(
        self, beat: Callable[[], Coroutine[Any, Any, bool]], gone: Callable[[], bool], every: float
    ) -> None:
        while not self.lost:
            await asyncio.sleep(every)
            under_way = asyncio.ensure_future(beat())
            try:
                while not under_way.done() and not gone():
                    await asyncio.wait([under_way], timeout=every)
                if gone() or not under_way.result():
                    self.lose()
            finally:
                under_way.cancel()


@contextmanager
def on_sigterm(stop: Callable[[], Coroutine[Any, Any, object]]) -> Iterator[None]:
    """SIGTERM stops what runs inside, unless the program has an answer of its own to it."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[object]] = set()
    with terminating.stopping(lambda: _soon(loop, lambda: tasks.add(loop.create_task(stop())))):
        yield


def _soon(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    with suppress(RuntimeError):
        # It may have ended meanwhile.
        loop.call_soon_threadsafe(work)
