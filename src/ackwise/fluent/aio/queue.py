"""A queue, described call by call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ackwise.client.claims import started_at
from ackwise.client.moments import seconds
from ackwise.client.rows import QueueInfo
from ackwise.core import limits
from ackwise.core.errors import UnknownQueue
from ackwise.core.limits import Seconds
from ackwise.core.messages import Receipt
from ackwise.core.queen_options import DEFAULT_OPTIONS, options_of
from ackwise.fluent.aio.consumer import AsyncConsumer
from ackwise.fluent.messages import Items, Message, items_of
from ackwise.fluent.options import Options, policy

if TYPE_CHECKING:
    from ackwise.fluent.aio.client import AsyncClient


class AsyncQueue:
    """Each call answers a new description, so that one may be kept and varied."""

    def __init__(self, client: AsyncClient, options: Options) -> None:
        self._client, self._options = client, options

    def _with(self, **changes: Any) -> AsyncQueue:
        return AsyncQueue(self._client, msgspec.structs.replace(self._options, **changes))

    def group(self, name: str) -> AsyncQueue:
        """Consume as this group; without one all consumers share the messages."""
        return self._with(group=limits.name(name, "group"))

    def partition(self, name: str) -> AsyncQueue:
        return self._with(partition=limits.name(name, "partition"))

    def batch(self, count: int) -> AsyncQueue:
        """How many are claimed at once. More than one are handed over as a list, unless `each`."""
        return self._with(batch=limits.count(count, "batch"))

    def max_bytes(self, count: int) -> AsyncQueue:
        """Stop a batch at this many bytes of payload, 16 MiB by default. A batch has at least one message."""
        return self._with(max_bytes=limits.claim_bytes(count))

    def concurrency(self, count: int) -> AsyncQueue:
        """How many batches are worked on side by side."""
        return self._with(concurrency=limits.count(count, "concurrency", most=1000))

    def auto_ack(self, on: bool) -> AsyncQueue:
        """True: acked when delivered, and lost if the handler fails. The default is False."""
        return self._with(auto_ack=bool(on))

    def each(self) -> AsyncQueue:
        """Hand messages over one by one, however many are claimed at once."""
        return self._with(each=True)

    def renew_lease(self, on: bool, every: Seconds | None = None) -> AsyncQueue:
        """Leases are renewed while a handler runs, when half of their time has gone or `every` so many seconds."""
        return self._with(renew=bool(on), renew_every=None if every is None else max(0.001, seconds(every, "every")))

    def lease(self, duration: Seconds) -> AsyncQueue:
        return self._with(lease=limits.lease_micros(duration) / limits.MICROS)

    def wait(self, duration: Seconds) -> AsyncQueue:
        """How long one poll waits."""
        return self._with(wait=seconds(duration, "wait"))

    def limit(self, count: int) -> AsyncQueue:
        """Stop after so many messages."""
        return self._with(limit=limits.count(count, "limit"))

    def idle(self, duration: Seconds) -> AsyncQueue:
        """Stop when nothing has come for so long."""
        return self._with(idle=seconds(duration, "idle"))

    def subscription_mode(self, start: Literal["all", "new"]) -> AsyncQueue:
        """Where a group that is new begins."""
        started_at(start)
        return self._with(start=start)

    def config(self, **options: Any) -> AsyncQueue:
        """What `create` makes of it: the fields of a queue's policy, or Queen's options in snake case.

        As in Queen 0 is off, `retry_delay` is in milliseconds, and dead letters are kept unless `dead_letter_queue` and
        `dlq_after_max_retries` are both False.
        """
        return self._with(config={**self._options.config, **options})

    async def create(self) -> QueueInfo:
        """Make the queue, or change it to what `config` said."""
        connection, name = self._client.connection, self._options.queue
        try:
            stored = options_of((await connection.queue(name)).policy)
        except UnknownQueue:
            stored = DEFAULT_OPTIONS
        return await connection.configure_queue(name, **policy(self._options.config, stored))

    async def delete(self) -> None:
        await self._client.connection.delete_queue(self._options.queue)

    async def push(self, items: Items) -> list[Receipt]:
        """`[{"data": ..., "transaction_id": ..., "delay_seconds": ...}]`, all or none."""
        wanted = items_of(items, self._options.place)
        return list(await self._client.connection.push_many(self._options.queue, wanted))

    async def pop(self) -> list[Message]:
        """What is there, up to a batch, after waiting for the first."""
        options = self._options
        batch = await self._client.claim(options, options.batch, options.wait)
        return [Message(delivery) for delivery in batch]

    def consume(self, handler: Callable[..., Any]) -> AsyncConsumer:
        """Run `handler` for every message. Await what this answers, or `run` it."""
        return AsyncConsumer(self._client, self._options, handler)
