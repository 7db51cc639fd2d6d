"""One delivery and its settlement."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, TypeVar, overload

from ackwise.client import settlements, tracing
from ackwise.client.aio.lease import AsyncLease
from ackwise.client.payloads import decode_json
from ackwise.core import ids
from ackwise.core.answers import Grant, Settled
from ackwise.core.commands import ByDelivery, Settlement
from ackwise.core.errors import LeaseLost
from ackwise.core.messages import Message
from ackwise.core.settlement import Outcome, Verdict
from ackwise.core.validation import Seconds
from ackwise.wire.timestamps import moment

T = TypeVar("T")
OnError = Literal["continue", "raise"]
log = logging.getLogger("ackwise.client")


class ConsumeLoop:
    """A running consume loop: decides which exceptions of a `with delivery:` block end it."""

    __slots__ = ("_on_error",)

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error

    def survives(self, problem: BaseException) -> bool:
        """Whether the loop continues after an exception. An interrupt, an exit and a cancellation always propagate."""
        return self._on_error == "continue" and isinstance(problem, Exception)


class AsyncDelivery:
    """One delivery of one message. Settle it once: ack, retry, reject or release.

    Usage::

        async with delivery:
            handle(delivery.json())

    While the block runs, the lease is extended. When the block ends, the delivery is acked. When the block raises, the
    delivery is retried. The exception of a delivery of `consume` is then logged, so that the loop continues. The
    exception of any other delivery propagates. `ackwise.Retry` and `ackwise.Reject` choose the outcome, and the block
    suppresses them.
    """

    __slots__ = ("_grant", "_message", "_span", "lease", "loop", "verdict")

    def __init__(self, message: Message, grant: Grant, lease: AsyncLease) -> None:
        self._message, self._grant, self.lease = message, grant, lease
        self._span: AbstractContextManager[None] | None = None
        """The `process` span of the `with` block that runs, if the connection makes spans."""
        self.loop: ConsumeLoop | None = None
        """The loop that yielded this delivery."""
        self.verdict: Verdict | None = None if lease.claimed.lease_no else Verdict.ACKED
        """The verdict of the settlement. None until this delivery is settled."""

    @property
    def payload(self) -> bytes:
        """The payload's bytes."""
        return self._message.payload

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, kind: type[T]) -> T: ...
    def json(self, kind: Any = Any) -> Any:
        """Decode the payload as JSON, into `kind` (a dataclass, a Struct, a TypedDict …) if you give one.

        Raises `UndecodablePayload` if the payload is not JSON or does not fit.
        """
        return decode_json(self._message.payload, kind)

    @property
    def headers(self) -> dict[str, str]:
        """The message's headers."""
        return self._message.headers

    @property
    def content_type(self) -> str:
        """The payload's content type."""
        return self._message.content_type

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._grant.queue

    @property
    def partition(self) -> str:
        """The partition's name."""
        return self._grant.partition

    @property
    def partition_id(self) -> str:
        """The partition's id."""
        return self._grant.partition_id

    @property
    def priority(self) -> int:
        """The message's priority."""
        return self._grant.priority

    @property
    def seq(self) -> int:
        """The message's number in its lane. Numbers have no gaps."""
        return self._message.seq

    @property
    def id(self) -> str:
        """The delivery id. A message gets a new one with each delivery. See `message_id`."""
        claimed, message = self.lease.claimed, self._message
        return ids.delivery_id(claimed.lease_no, claimed.tag, message.lane, message.seq)

    @property
    def message_id(self) -> str:
        """The message id, the same for every delivery of the message."""
        return self._message.id

    @property
    def transaction_id(self) -> str:
        """The transaction id, or the message id if the message was pushed without a transaction id."""
        return self._message.transaction_id

    @property
    def group(self) -> str:
        """The consumer group's name."""
        return self.lease.claimed.group

    @property
    def lease_id(self) -> str:
        """The id of the batch's lease."""
        return self.lease.claimed.lease_id

    @property
    def attempt(self) -> int:
        """The number of this delivery of the message, from 1."""
        return self._grant.attempt

    @property
    def failures(self) -> int:
        """The number of failures that count towards the retry limit."""
        return self._grant.failures

    @property
    def created_at(self) -> datetime:
        """When the message was pushed."""
        return moment(self._message.created_at)

    @property
    def deadline(self) -> datetime:
        """When the lease expires."""
        return self.lease.expires_at

    @property
    def selector(self) -> ByDelivery:
        """Selects this delivery in a settlement."""
        return ByDelivery(self.id)

    async def ack(self) -> Verdict:
        """Ack the message: the group never gets it again."""
        return await self._settle(Settlement(selector=self.selector, outcome=Outcome.ACK))

    async def retry(self, *, delay: Seconds | None = None, error: str | BaseException | None = None) -> Verdict:
        """Record a failure: the message comes back after `delay` seconds or the queue's backoff.

        After the last allowed failure the message becomes a dead letter, and the verdict is `dead`.
        """
        return await self._settle(settlements.retry(self.selector, delay, error))

    async def reject(self, reason: str | BaseException | None = None) -> Verdict:
        """Dead-letter the message now, for example because it can never succeed."""
        return await self._settle(settlements.reject(self.selector, reason))

    async def release(self) -> Verdict:
        """Return the message to the queue. A release costs no failure."""
        return await self._settle(Settlement(selector=self.selector, outcome=Outcome.RELEASE))

    async def extend(self, duration: Seconds | None = None) -> datetime:
        """Extend the lease of the whole batch to `duration` seconds from now, by default its first duration."""
        return await self.lease.extend(duration)

    async def _settle(self, settlement: Settlement) -> Verdict:
        verdict = await self.lease.settle(settlement)
        self.verdict = self.verdict or verdict
        return verdict

    def note(self, answer: Settled) -> None:
        """Record the answer of a `settle` call or a transaction that settled this delivery."""
        self.lease.note(self.selector, answer)
        self.verdict = self.verdict or (answer.verdict if answer.verdict.settled else None)

    async def __aenter__(self) -> AsyncDelivery:
        self.lease.begin_work()
        if self.lease.is_traced:
            self._span = tracing.process_span(
                self.queue, self.message_id, self.headers, self.attempt, group=self.group, delivery_id=self.id
            )
            self._span.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> bool:
        span, self._span = self._span, None
        if span is None:
            return await self._leave(problem)
        try:
            return await self._leave(problem)
        finally:
            span.__exit__(kind, problem, trace)

    async def _leave(self, problem: BaseException | None) -> bool:
        """Settle at the end of a `with` block. Returns whether to suppress the exception."""
        loop = self.loop
        try:
            suppresses = False
            if self.verdict is None:
                suppresses, self.verdict = await self.lease.settle_at_exit(self.selector, problem)
        except LeaseLost as refusal:
            if loop is None or not loop.survives(refusal):
                raise
            log.warning("%s: the settlement was refused, the message is delivered again: %s", self, refusal)
            return True
        finally:
            self.lease.end_work()
        if suppresses or loop is None or problem is None or not loop.survives(problem):
            return suppresses
        log.error("%s failed", self, exc_info=problem)
        return True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue}/{self.partition} attempt {self.attempt}>"
