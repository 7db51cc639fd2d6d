"""What an explicit handler holds: the payload, and the one settlement that its delivery will have."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from datetime import datetime
from typing import Any, Generic, TypeVar

from ackwise.core.errors import NotSettleable
from ackwise.core.limits import Seconds
from ackwise.core.outcomes import Reject
from ackwise.core.settlement import Outcome
from ackwise.subscriber.handover import Ask, Handover
from ackwise.subscriber.outcomes import Nak

T = TypeVar("T")
R = TypeVar("R")

_GUARD = threading.Lock()
"""Held for one comparison: whoever comes first settles, be it another task or another thread."""


class Message(Generic[T]):
    """One attempt at one message. `ack`, `nak` and `term` answer True when they settled it, False when it was settled
    already, or its time was over. The first call wins; a repeat never raises.

    From another thread use `ack_threadsafe` and its siblings.
    """

    __slots__ = ("__weakref__", "_asking", "_handover", "_loop", "_settled", "payload")

    def __init__(self, payload: T, handover: Handover, loop: asyncio.AbstractEventLoop) -> None:
        self.payload = payload
        self._handover, self._loop = handover, loop
        self._settled = self._asking = False

    @property
    def id(self) -> str:
        """The message's own, the same for every attempt."""
        return self._handover.id

    @property
    def queue(self) -> str:
        return self._handover.queue

    @property
    def headers(self) -> dict[str, str]:
        return self._handover.headers

    @property
    def raw(self) -> bytes:
        """The payload as it came."""
        return self._handover.body

    @property
    def attempt(self) -> int:
        """Which delivery of the message this is, from 1."""
        return self._handover.attempt

    @property
    def enqueued_at(self) -> datetime:
        return self._handover.enqueued_at

    @property
    def deadline(self) -> datetime | None:
        """Until when it is held; None when it was acked at delivery."""
        return self._handover.deadline

    @property
    def settled(self) -> bool:
        """Whether somebody settled it, or is about to."""
        return self._settled or not self._handover.settleable

    @property
    def unfinished(self) -> bool:
        """Not settled, or the answer to that is not there yet."""
        return self._asking or not self.settled

    async def ack(self) -> bool:
        """Done: never delivered to this group again."""
        return await self.settle(Outcome.ACK)

    async def nak(self, delay: Seconds | None = None, *, error: str | BaseException | None = None) -> bool:
        """Failed: again after `delay` seconds, at once with 0, without one on the queue's schedule."""
        return await self.settle(Nak(delay, error=error))

    async def term(self, reason: str | BaseException | None = None) -> bool:
        """It can never succeed: dead-letter it now."""
        return await self.settle(Reject() if reason is None else Reject(reason))

    async def extend(self, seconds: Seconds | None = None) -> bool:
        """Hold it for `seconds` from now, or as long as at first; False when it is no longer held."""
        return False if self.settled else await self._handover.extend(seconds)

    def ack_threadsafe(self) -> bool:
        return self._from_thread(self.ack())

    def nak_threadsafe(self, delay: Seconds | None = None, *, error: str | BaseException | None = None) -> bool:
        return self._from_thread(self.nak(delay, error=error))

    def term_threadsafe(self, reason: str | BaseException | None = None) -> bool:
        return self._from_thread(self.term(reason))

    def extend_threadsafe(self, seconds: Seconds | None = None) -> bool:
        return self._from_thread(self.extend(seconds))

    def _from_thread(self, work: Coroutine[Any, Any, R]) -> R:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            work.close()
            raise RuntimeError("this is the event loop's own thread, which would wait for itself; await it instead")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def settle(self, ask: Ask) -> bool:
        if not self._take():
            return False
        self._asking = True
        try:
            return await self._handover.settle(ask)
        except BaseException:
            # Nobody knows whether it was done: it may be tried again.
            self._settled = False
            raise
        finally:
            self._asking = False

    def settle_soon(self, ask: Ask) -> None:
        """For the app itself, which does not wait for the answer."""
        if self._take():
            try:
                self._handover.settle_soon(ask)
            except BaseException:
                self._settled = False
                raise

    def _take(self) -> bool:
        """Whether it is ours to settle; from now on it is nobody else's."""
        if not self._handover.settleable:
            raise NotSettleable
        with _GUARD:
            first, self._settled = not self._settled, True
        return first

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue} attempt {self.attempt}>"
