"""The same actor for threads: its event loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, TypeVar

from ackwise.core.errors import Draining, OutcomeUnknown
from ackwise.pushpop.actor import Answered, Item, PushPopActor
from ackwise.store.clock import Clock
from ackwise.store.url import Durability

T = TypeVar("T")


class _Loop:
    """An event loop that any number of threads hand work to. It is made, run and closed in its own thread."""

    def __init__(self) -> None:
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._serve, name="ackwise-pushpop", daemon=True)
        self._thread.start()
        self._loop = self._ready.result()
        self._handing = threading.Lock()
        self._closing = False

    def _serve(self) -> None:
        try:
            with asyncio.Runner() as runner:
                loop = runner.get_loop()
                self._ready.set_result(loop)
                loop.run_forever()
        except BaseException as problem:
            if self._ready.done():
                raise
            self._ready.set_exception(problem)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._handing:
            if self._closing:
                work.close()
                raise Draining("it is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return _result(future)

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Nothing more is begun; what is under way may be cut off once `last` is done."""
        with self._handing:
            self._closing = True
        try:
            _result(asyncio.run_coroutine_threadsafe(last, self._loop))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()


def _result(future: Future[T]) -> T:
    try:
        return future.result()
    except CancelledError:
        raise OutcomeUnknown("it was closed meanwhile, so it may or may not have happened") from None


class PushPop:
    """One queue: items with priorities, popped at once or held under a lock until they are acknowledged.

    Usage::

        with PushPop("orders", "sqlite:///queue.db") as queue:
            queue.push({"id": 1}, priority=2)
            popped = queue.pop_with_ack(ttl_seconds=60)
            queue.acknowledge(popped["lock_id"])

    Any number of threads may share it. What the methods mean is said at `PushPopActor`.
    """

    def __init__(
        self,
        queue: str,
        url: str,
        *,
        clock: Clock | None = None,
        durability: Durability | None = None,
        default_priority: int = 0,
    ) -> None:
        self._actor = PushPopActor(queue, url, clock=clock, durability=durability, default_priority=default_priority)
        self._loop = _Loop()
        self._owner = True

    @property
    def queue(self) -> str:
        return self._actor.queue

    def another(self, queue: str) -> PushPop:
        """Another queue over the same connection; closing this one closes both."""
        beside = object.__new__(PushPop)
        beside._actor, beside._loop, beside._owner = self._actor.another(queue), self._loop, False
        return beside

    def push(self, item: Item, priority: int | None = None) -> bool:
        return self._loop.run(self._actor.push(item, priority))

    def push_many(self, items: Iterable[Item | tuple[Item, int]]) -> int:
        return self._loop.run(self._actor.push_many(items))

    def pop(self, count: int = 1) -> list[Item]:
        return self._loop.run(self._actor.pop(count))

    def pop_with_ack(
        self, ttl_seconds: int = 30, count: int = 1, *, allow_competing_consumers: bool = False
    ) -> Answered:
        return self._loop.run(
            self._actor.pop_with_ack(ttl_seconds, count, allow_competing_consumers=allow_competing_consumers)
        )

    def acknowledge(self, lock_id: str) -> Answered:
        return self._loop.run(self._actor.acknowledge(lock_id))

    def extend_lock(self, lock_id: str, additional_ttl_seconds: int = 30) -> Answered:
        return self._loop.run(self._actor.extend_lock(lock_id, additional_ttl_seconds))

    def dead_letter(self, lock_id: str) -> Answered:
        return self._loop.run(self._actor.dead_letter(lock_id))

    def metadata(self) -> Answered:
        return self._loop.run(self._actor.metadata())

    def status(self) -> Answered:
        return self._loop.run(self._actor.status())

    def Push(self, data: Mapping[str, Any]) -> bool:
        return self._loop.run(self._actor.Push(data))

    def Pop(self) -> list[Item]:
        return self._loop.run(self._actor.Pop())

    def PopWithAck(self, data: Mapping[str, Any] | None = None) -> Answered:
        return self._loop.run(self._actor.PopWithAck(data))

    def Acknowledge(self, data: Mapping[str, Any]) -> Answered:
        return self._loop.run(self._actor.Acknowledge(data))

    def ExtendLock(self, data: Mapping[str, Any]) -> Answered:
        return self._loop.run(self._actor.ExtendLock(data))

    def DeadLetter(self, data: Mapping[str, Any]) -> Answered:
        return self._loop.run(self._actor.DeadLetter(data))

    def close(self) -> None:
        """Locks stay as they are: they run out, or are acknowledged by whoever knows their id."""
        if self._owner:
            self._owner = False
            self._loop.close(self._actor.close())

    def __enter__(self) -> PushPop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
