"""The deliveries of one claim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import overload

from ackwise.client import settlements
from ackwise.client.aio.delivery import AsyncDelivery
from ackwise.client.aio.lease import AsyncLease
from ackwise.core.answers import Grant, Handed, Settled
from ackwise.core.commands import ByLease, ByRange, Settlement
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.messages import Message
from ackwise.core.settlement import Outcome, Verdict
from ackwise.core.validation import Seconds


class AsyncBatch(Sequence[AsyncDelivery]):
    """The deliveries of one claim, under one lease. Settling the batch settles all deliveries that are not settled yet.

    Usage::

        async with await connection.claim("orders", max=100) as batch:
            for delivery in batch:
                handle(delivery.json())

    While the block runs, the lease is extended. When the block ends, the batch acks the deliveries that are not
    settled. When the block raises, it retries them.
    """

    __slots__ = ("_messages", "lease")

    def __init__(self, handed: Handed, lease: AsyncLease) -> None:
        self._messages = handed.messages
        self.lease = lease

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[AsyncDelivery]:
        lease = self.lease
        grants = iter(lease.claimed.grants)
        lane = lo = hi = -1
        for message in self._messages:
            while message.lane != lane or not lo <= message.seq < hi:
                grant = next(grants)
                lane, lo, hi = grant.lane, grant.lo, grant.hi
            yield AsyncDelivery(message, grant, lease)

    @overload
    def __getitem__(self, index: int) -> AsyncDelivery: ...
    @overload
    def __getitem__(self, index: slice) -> list[AsyncDelivery]: ...
    def __getitem__(self, index: int | slice) -> AsyncDelivery | list[AsyncDelivery]:
        if isinstance(index, slice):
            return [self._delivery(message) for message in self._messages[index]]
        return self._delivery(self._messages[index])

    def _delivery(self, message: Message) -> AsyncDelivery:
        grant = next(grant for grant in self.lease.claimed.grants if _inside(grant, message))
        return AsyncDelivery(message, grant, self.lease)

    @property
    def lease_id(self) -> str:
        """The lease's id. Empty if the batch has no lease because it is empty or was claimed with `auto_ack`."""
        return self.lease.claimed.lease_id

    @property
    def group(self) -> str:
        """The consumer group's name."""
        return self.lease.claimed.group

    @property
    def deadline(self) -> datetime:
        """When the lease expires."""
        return self.lease.expires_at

    @property
    def empty(self) -> EmptyReason | None:
        """Why the batch is empty: `empty`, `locked`, `delayed`, `paused`, `ended`, `draining` or `unavailable`."""
        return self.lease.claimed.empty

    @property
    def until(self) -> datetime | None:
        """When the next message may become available. None if the claim's answer has no such time."""
        until = self.lease.claimed.until
        return None if until is None else self.lease.shown(until)

    @property
    def selector(self) -> ByLease:
        """Selects all deliveries of this batch that are not settled yet."""
        return ByLease(self.lease_id)

    async def ack(self) -> Verdict:
        """Ack all deliveries that are not settled yet."""
        return await self.lease.settle(Settlement(selector=self.selector, outcome=Outcome.ACK))

    async def retry(self, *, delay: Seconds | None = None, error: str | BaseException | None = None) -> Verdict:
        """Record a failure for all deliveries that are not settled yet. They come back after `delay` seconds."""
        return await self.lease.settle(settlements.retry(self.selector, delay, error))

    async def reject(self, reason: str | BaseException | None = None) -> Verdict:
        """Dead-letter all deliveries that are not settled yet."""
        return await self.lease.settle(settlements.reject(self.selector, reason))

    async def release(self) -> Verdict:
        """Return all deliveries that are not settled yet to the queue. A release costs no failure."""
        return await self.lease.settle(Settlement(selector=self.selector, outcome=Outcome.RELEASE))

    async def extend(self, duration: Seconds | None = None) -> datetime:
        """Extend the lease to `duration` seconds from now, by default its first duration. Returns the new deadline."""
        return await self.lease.extend(duration)

    def note(self, answer: Settled) -> None:
        """Record the answer of a `settle` call or a transaction that settled this batch."""
        self.lease.note(self.selector, answer)

    def rest(self, index: int) -> list[ByRange]:
        """The deliveries from `index` to the end, as ranges."""
        if index >= len(self):
            return []
        first, grants = self._messages[index], self.lease.claimed.grants
        at = next(i for i, grant in enumerate(grants) if _inside(grant, first))
        ranges = [(grants[at].lane, first.seq, grants[at].hi), *((g.lane, g.lo, g.hi) for g in grants[at + 1 :])]
        return [ByRange(self.lease_id, lane, lo, hi) for lane, lo, hi in ranges]

    async def __aenter__(self) -> AsyncBatch:
        self.lease.begin_work()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            suppresses, _ = await self.lease.settle_at_exit(self.selector, problem)
            return suppresses
        finally:
            self.lease.end_work()

    def __repr__(self) -> str:
        what = f"{len(self)} under {self.lease_id}" if len(self) else f"{self.empty}"
        return f"<{type(self).__name__} {what}>"


def _inside(grant: Grant, message: Message) -> bool:
    return grant.lane == message.lane and grant.lo <= message.seq < grant.hi
