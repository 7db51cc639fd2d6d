"""Message that a handler settles, and the exceptions `Nak` and `Term`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, Generic, TypeVar

from ackwise.core import validation
from ackwise.core.errors import NotSettleable
from ackwise.core.settlement import Outcome, Reject, Retry
from ackwise.core.validation import Seconds
from ackwise.subscriber.transport_delivery import Ask, TransportDelivery

T = TypeVar("T")
R = TypeVar("R")

_GUARD = threading.Lock()
"""Held for one comparison: the first settlement wins, whether it comes from a task or from a thread."""


class Message(Generic[T]):
    """A received message. Settle it with `ack`, `nak` or `term`.

    These methods return True if they settled the message. They return False if it was settled before or its lease has
    expired. The first call wins. A repeated call never raises. From another thread, use `ack_threadsafe`,
    `nak_threadsafe`, `term_threadsafe` and `extend_threadsafe`.
    """

    __slots__ = ("__weakref__", "_asking", "_count", "_delivery", "_loop", "_settled", "payload")

    def __init__(
        self,
        payload: T,
        delivery: TransportDelivery,
        loop: asyncio.AbstractEventLoop,
        count: Callable[[Ask], None] = lambda _: None,
    ) -> None:
        """`count` is called with each settlement that succeeded or was sent."""
        self.payload = payload
        self._count = count
        self._delivery, self._loop = delivery, loop
        self._settled = self._asking = False

    @property
    def id(self) -> str:
        """The message id, the same for every delivery of the message."""
        return self._delivery.id

    @property
    def queue(self) -> str:
        """The queue's name. With NATS the subject."""
        return self._delivery.queue

    @property
    def headers(self) -> dict[str, str]:
        """The message's headers."""
        return self._delivery.headers

    @property
    def raw(self) -> bytes:
        """The payload's bytes."""
        return self._delivery.body

    @property
    def span_key(self) -> str | None:
        """Internal: the delivery id by which a settlement finds the span of the handler."""
        return self._delivery.span_key

    @property
    def attempt(self) -> int:
        """The number of this delivery of the message, from 1."""
        return self._delivery.attempt

    @property
    def enqueued_at(self) -> datetime:
        """When the message was published."""
        return self._delivery.enqueued_at

    @property
    def deadline(self) -> datetime | None:
        """When the lease expires. None if the message was acked at delivery."""
        return self._delivery.deadline

    @property
    def settled(self) -> bool:
        """Whether the message is settled, or a settlement is in flight."""
        return self._settled or not self._delivery.settleable

    @property
    def unfinished(self) -> bool:
        """Whether the message is not settled, or the settlement's answer is missing."""
        return self._asking or not self.settled

    async def ack(self) -> bool:
        """Ack the message: the group never gets it again."""
        return await self.settle(Outcome.ACK)

    async def nak(self, delay: Seconds | None = None, *, error: str | BaseException | None = None) -> bool:
        """Record a failure: the message comes back after `delay` seconds, by default on the queue's schedule."""
        return await self.settle(Nak(delay, error=error))

    async def term(self, reason: str | BaseException | None = None) -> bool:
        """Dead-letter the message now, for example because it can never succeed."""
        return await self.settle(Reject() if reason is None else Reject(reason))

    async def extend(self, seconds: Seconds | None = None) -> bool:
        """Extend the lease to `seconds` from now, by default its first duration. False if the lease is lost."""
        return False if self.settled else await self._delivery.extend(seconds)

    def ack_threadsafe(self) -> bool:
        """`ack` for another thread than the event loop's."""
        return self._from_thread(self.ack())

    def nak_threadsafe(self, delay: Seconds | None = None, *, error: str | BaseException | None = None) -> bool:
        """`nak` for another thread than the event loop's."""
        return self._from_thread(self.nak(delay, error=error))

    def term_threadsafe(self, reason: str | BaseException | None = None) -> bool:
        """`term` for another thread than the event loop's."""
        return self._from_thread(self.term(reason))

    def extend_threadsafe(self, seconds: Seconds | None = None) -> bool:
        """`extend` for another thread than the event loop's."""
        return self._from_thread(self.extend(seconds))

    def _from_thread(self, work: Coroutine[Any, Any, R]) -> R:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            work.close()
            raise RuntimeError(
                "this is the event loop's own thread, which must not block; await the method without _threadsafe"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def settle(self, ask: Ask) -> bool:
        """Settle with an outcome or an exception. `ack`, `nak` and `term` use it."""
        if not self._take():
            return False
        self._asking = True
        try:
            done = await self._delivery.settle(ask)
            if done:
                self._count(ask)
            return done
        except BaseException:
            # The outcome is unknown: allow another try.
            self._settled = False
            raise
        finally:
            self._asking = False

    def settle_soon(self, ask: Ask) -> None:
        """Settle without waiting for the answer. The app itself uses it."""
        if self._take():
            try:
                self._delivery.settle_soon(ask)
                self._count(ask)
            except BaseException:
                self._settled = False
                raise

    def _take(self) -> bool:
        """Reserve the settlement. Returns True for the first caller only."""
        if not self._delivery.settleable:
            raise NotSettleable
        with _GUARD:
            first, self._settled = not self._settled, True
        return first

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue} attempt {self.attempt}>"


class Nak(Retry):
    """Raise this to retry the message after `delay` seconds, at once with 0, by default on the queue's schedule."""

    def __init__(self, delay: Seconds | None = None, *, error: str | BaseException | None = None) -> None:
        if delay is not None:
            validation.micros(delay, "delay")
        super().__init__(delay=delay, error=error)


Term = Reject
