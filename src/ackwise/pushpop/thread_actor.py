"""PushPop queue for threads: runs the actor on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, TypeVar

from ackwise.clock import Clock
from ackwise.core.errors import Draining, OutcomeUnknown
from ackwise.pushpop.actor import Answered, Item, PushPopActor
from ackwise.wire.store_url import Durability

T = TypeVar("T")


class _Loop:
    """Event loop in its own thread. Any number of threads may run coroutines on it."""

    def __init__(self) -> None:
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._serve, name="ackwise-pushpop", daemon=True)
        self._thread.start()
        self._loop = self._ready.result()
        self._lock = threading.Lock()
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
        """Run a coroutine on the loop and return its result."""
        with self._lock:
            if self._closing:
                work.close()
                raise Draining("the queue object is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return _result(future)

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Accept no further coroutine, run `last`, then cancel those that still run and end the loop."""
        with self._lock:
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
        raise OutcomeUnknown("the queue object was closed during the call: it may or may not have happened") from None


class PushPop:
    """A PushPop queue, for threads: push items with priorities, pop them, or hold them under a lock until you ack.

    Usage::

        with PushPop("orders", "sqlite:///queue.db") as queue:
            queue.push({"id": 1}, priority=2)
            popped = queue.pop_with_ack(ttl_seconds=60)
            queue.acknowledge(popped["lock_id"])

    Any number of threads may share it. `PushPopActor` documents the methods.
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
        """The queue's id."""
        return self._actor.queue

    def another(self, queue: str) -> PushPop:
        """Another queue on the same connection. Closing this object closes both."""
        sibling = object.__new__(PushPop)
        sibling._actor, sibling._loop, sibling._owner = self._actor.another(queue), self._loop, False
        return sibling

    def push(self, item: Item, priority: int | None = None) -> bool:
        """Push an item. Returns True when the item is on disk. Priority 0 is popped first."""
        return self._loop.run(self._actor.push(item, priority))

    def push_many(self, items: Iterable[Item | tuple[Item, int]]) -> int:
        """Push up to 1000 items, or (item, priority) pairs, in one commit. Returns how many."""
        return self._loop.run(self._actor.push_many(items))

    def pop(self, count: int = 1) -> list[Item]:
        """Pop items and remove them from the queue. Raises `QueueLocked` while a consumer holds the lock."""
        return self._loop.run(self._actor.pop(count))

    def pop_with_ack(
        self, ttl_seconds: int = 30, count: int = 1, *, allow_competing_consumers: bool = False
    ) -> Answered:
        """Pop items under a lock that lasts `ttl_seconds`. See `PushPopActor.pop_with_ack`."""
        return self._loop.run(
            self._actor.pop_with_ack(ttl_seconds, count, allow_competing_consumers=allow_competing_consumers)
        )

    def acknowledge(self, lock_id: str) -> Answered:
        """Ack all items under the lock. `success` is false if the lock has expired."""
        return self._loop.run(self._actor.acknowledge(lock_id))

    def extend_lock(self, lock_id: str, additional_ttl_seconds: int = 30) -> Answered:
        """Extend the lock by `additional_ttl_seconds`, counted from its present expiry."""
        return self._loop.run(self._actor.extend_lock(lock_id, additional_ttl_seconds))

    def dead_letter(self, lock_id: str) -> Answered:
        """Dead-letter all items under the lock."""
        return self._loop.run(self._actor.dead_letter(lock_id))

    def metadata(self) -> Answered:
        """Count items by priority. While there is a lock, the answer has `_active_lock` with its items."""
        return self._loop.run(self._actor.metadata())

    def status(self) -> Answered:
        """Return the queue's depth, its lock with the seconds left, and the number of expired locks."""
        return self._loop.run(self._actor.status())

    def Push(self, data: Mapping[str, Any]) -> bool:
        """Push `data["item"]` with `data["priority"]`. See `push`."""
        return self._loop.run(self._actor.Push(data))

    def Pop(self) -> list[Item]:
        """Pop one item. See `pop`."""
        return self._loop.run(self._actor.Pop())

    def PopWithAck(self, data: Mapping[str, Any] | None = None) -> Answered:
        """Pop items under a lock. `data` has the arguments of `pop_with_ack`."""
        return self._loop.run(self._actor.PopWithAck(data))

    def Acknowledge(self, data: Mapping[str, Any]) -> Answered:
        """Ack all items under the lock `data["lock_id"]`."""
        return self._loop.run(self._actor.Acknowledge(data))

    def ExtendLock(self, data: Mapping[str, Any]) -> Answered:
        """Extend the lock `data["lock_id"]`. See `extend_lock`."""
        return self._loop.run(self._actor.ExtendLock(data))

    def DeadLetter(self, data: Mapping[str, Any]) -> Answered:
        """Dead-letter all items under the lock `data["lock_id"]`."""
        return self._loop.run(self._actor.DeadLetter(data))

    def close(self) -> None:
        """Close the connection. Locks stay until they expire or a client acks them by id."""
        if self._owner:
            self._owner = False
            self._loop.close(self._actor.close())

    def __enter__(self) -> PushPop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
