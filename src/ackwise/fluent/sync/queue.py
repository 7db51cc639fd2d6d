# Generated from ../aio/queue.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Queue builder: a chain of calls that describes a consumer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ackwise.client.options import start_position
from ackwise.client.results import QueueInfo
from ackwise.core import validation
from ackwise.core.errors import UnknownQueue
from ackwise.core.messages import Receipt
from ackwise.core.validation import Seconds
from ackwise.fluent.messages import Items, Message, items_of
from ackwise.fluent.options import Options, policy
from ackwise.fluent.sync.consumer import Consumer
from ackwise.wire.queen_options import DEFAULT_OPTIONS, options_of
from ackwise.wire.timestamps import seconds

if TYPE_CHECKING:
    from ackwise.fluent.sync.client import Client


class Queue:
    """A queue with the options of a call chain.

    Each method that sets an option returns a new object, so that you can keep one and vary it.
    """

    def __init__(self, client: Client, options: Options) -> None:
        self._client, self._options = client, options

    def _with(self, **changes: Any) -> Queue:
        return Queue(self._client, msgspec.structs.replace(self._options, **changes))

    def group(self, name: str) -> Queue:
        """Consume as this group. Each group gets every message. Consumers without a group share the messages."""
        return self._with(group=validation.name(name, "group"))

    def partition(self, name: str) -> Queue:
        """Push to and consume from this partition only."""
        return self._with(partition=validation.name(name, "partition"))

    def batch(self, count: int) -> Queue:
        """Claim up to `count` messages at once. Above 1, the handler gets a list, unless you call `each`."""
        return self._with(batch=validation.count(count, "batch"))

    def max_bytes(self, count: int) -> Queue:
        """Bound a batch's payload to this many bytes, 16 MiB by default. A batch has at least one message."""
        return self._with(max_bytes=validation.claim_bytes(count))

    def concurrency(self, count: int) -> Queue:
        """Handle up to `count` batches concurrently."""
        return self._with(concurrency=validation.count(count, "concurrency", most=1000))

    def auto_ack(self, on: bool) -> Queue:
        """Ack messages at delivery: a message is lost if its handler fails. The default is False."""
        return self._with(auto_ack=bool(on))

    def each(self) -> Queue:
        """Call the handler with single messages, however many are claimed at once."""
        return self._with(each=True)

    def renew_lease(self, on: bool, every: Seconds | None = None) -> Queue:
        """Renew leases while a handler runs: when half of their time is over, or every `every` seconds."""
        return self._with(renew=bool(on), renew_every=None if every is None else max(0.001, seconds(every, "every")))

    def lease(self, duration: Seconds) -> Queue:
        """Claim with leases of this many seconds, by default the queue's."""
        return self._with(lease=validation.lease_micros(duration) / validation.MICROS)

    def wait(self, duration: Seconds) -> Queue:
        """Wait this many seconds for messages in one poll."""
        return self._with(wait=seconds(duration, "wait"))

    def limit(self, count: int) -> Queue:
        """Stop the consumer after `count` messages."""
        return self._with(limit=validation.count(count, "limit"))

    def idle(self, duration: Seconds) -> Queue:
        """Stop the consumer when no message has come for this many seconds."""
        return self._with(idle=seconds(duration, "idle"))

    def subscription_mode(self, start: Literal["all", "new"]) -> Queue:
        """Where a new group begins: at all messages, or at new ones only."""
        start_position(start)
        return self._with(start=start)

    def config(self, **options: Any) -> Queue:
        """Set the options that `create` stores: the fields of a queue's policy, or Queen's options in snake case.

        Queen's options keep their meaning: 0 is off, `retry_delay` is in milliseconds. Dead letters are kept unless
        `dead_letter_queue` and `dlq_after_max_retries` are both False.
        """
        return self._with(config={**self._options.config, **options})

    def create(self) -> QueueInfo[datetime]:
        """Create the queue, or change it to the options of `config`."""
        connection, name = self._client.connection, self._options.queue
        try:
            stored = options_of((connection.queue(name)).policy)
        except UnknownQueue:
            stored = DEFAULT_OPTIONS
        return connection.configure_queue(name, **policy(self._options.config, stored))

    def delete(self) -> None:
        """Delete the queue with all its messages."""
        self._client.connection.delete_queue(self._options.queue)

    def push(self, items: Items) -> list[Receipt]:
        """Push items `[{"data": …, "transaction_id": …, "delay_seconds": …}]` in one commit, all or none."""
        messages = items_of(items, self._options.push_partition)
        return list(self._client.connection.push_many(self._options.queue, messages))

    def pop(self) -> list[Message]:
        """Claim up to one batch of messages, waiting for the first. Acknowledge them yourself."""
        options = self._options
        batch = self._client.claim(options, options.batch, options.wait)
        return [Message(delivery) for delivery in batch]

    def consume(self, handler: Callable[..., Any]) -> Consumer:
        """Build a consumer that calls `handler` for every message. Await the consumer or call its `run`."""
        return Consumer(self._client, self._options, handler)
