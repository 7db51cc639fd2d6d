"""One message in hand."""

from __future__ import annotations

from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar, overload

import msgspec

from ackwise.client import settling
from ackwise.client.aio.lease import AsyncLease
from ackwise.client.moments import moment
from ackwise.core import ids
from ackwise.core.answers import Grant, Settled
from ackwise.core.commands import ByDelivery, Settlement
from ackwise.core.limits import Seconds
from ackwise.core.messages import Message
from ackwise.core.settlement import Outcome, Verdict

T = TypeVar("T")


class AsyncDelivery:
    """One attempt at one message. It ends in exactly one settlement: ack, retry, reject or release.

    Usage::

        async with delivery:
            handle(delivery.json())

    acks when the block ends, records a retry when it raises (the exception goes on), and swallows
    `ackwise.Retry` and `ackwise.Reject`, which choose the outcome.
    """

    __slots__ = ("_grant", "_message", "lease", "verdict")

    def __init__(self, message: Message, grant: Grant, lease: AsyncLease) -> None:
        self._message, self._grant, self.lease = message, grant, lease
        self.verdict: Verdict | None = None if lease.claimed.lease_no else Verdict.ACKED
        """How it ended, once it was settled through this object."""

    @property
    def payload(self) -> bytes:
        return self._message.payload

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, kind: type[T]) -> T: ...
    def json(self, kind: Any = Any) -> Any:
        """The payload parsed as JSON, into `kind` (a dataclass, a Struct, a TypedDict ...) when one is given."""
        return msgspec.json.decode(self._message.payload, type=kind)

    @property
    def headers(self) -> dict[str, str]:
        return self._message.headers

    @property
    def content_type(self) -> str:
        return self._message.content_type

    @property
    def queue(self) -> str:
        return self._grant.queue

    @property
    def partition(self) -> str:
        return self._grant.partition

    @property
    def partition_id(self) -> str:
        return self._grant.partition_id

    @property
    def priority(self) -> int:
        return self._grant.priority

    @property
    def seq(self) -> int:
        """The place in its lane, without gaps."""
        return self._message.seq

    @property
    def id(self) -> str:
        """The delivery id: of this attempt, not of the message."""
        claimed, message = self.lease.claimed, self._message
        return ids.delivery_id(claimed.lease_no, claimed.tag, message.lane, message.seq)

    @property
    def message_id(self) -> str:
        return self._message.id

    @property
    def transaction_id(self) -> str:
        return self._message.transaction_id

    @property
    def group(self) -> str:
        return self.lease.claimed.group

    @property
    def lease_id(self) -> str:
        return self.lease.claimed.lease_id

    @property
    def attempt(self) -> int:
        """Which delivery of the message this is, from 1."""
        return self._grant.attempt

    @property
    def failures(self) -> int:
        """How many failures the retry limit has counted so far."""
        return self._grant.failures

    @property
    def created_at(self) -> datetime:
        return moment(self._message.created_at)

    @property
    def deadline(self) -> datetime:
        """When the lease runs out."""
        return moment(self.lease.deadline)

    @property
    def selector(self) -> ByDelivery:
        return ByDelivery(self.id)

    async def ack(self) -> Verdict:
        """Done: never delivered to this group again."""
        return await self._settle(Settlement(selector=self.selector, outcome=Outcome.ACK))

    async def retry(self, *, delay: Seconds | None = None, error: str | BaseException | None = None) -> Verdict:
        """Failed: again after `delay` or the queue's backoff, or `dead` when this was the last failure allowed."""
        return await self._settle(settling.retry(self.selector, delay, error))

    async def reject(self, reason: str | BaseException | None = None) -> Verdict:
        """It can never succeed: dead-letter it now."""
        return await self._settle(settling.reject(self.selector, reason))

    async def release(self) -> Verdict:
        """Hand it back without spending a failure."""
        return await self._settle(Settlement(selector=self.selector, outcome=Outcome.RELEASE))

    async def extend(self, duration: Seconds | None = None) -> datetime:
        """Hold the whole lease longer: `duration` seconds from now, or as long as at first."""
        return await self.lease.extend(duration)

    async def _settle(self, settlement: Settlement) -> Verdict:
        verdict = await self.lease.settle(settlement)
        self.verdict = self.verdict or verdict
        return verdict

    def note(self, answer: Settled) -> None:
        """Learn that it was settled elsewhere, in a `settle` call or a transaction."""
        self.lease.note(self.selector, answer)
        self.verdict = self.verdict or (answer.verdict if answer.verdict.settled else None)

    async def __aenter__(self) -> AsyncDelivery:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self.verdict is not None:
            return False
        return await self.lease.settle_at_exit(self.selector, problem)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue}/{self.partition} attempt {self.attempt}>"
