# Generated from ../aio/transaction.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Fluent transactions: acks, nacks and pushes in one commit."""

from __future__ import annotations

from ackwise.client.sync import Connection
from ackwise.core.answers import TransactionDone
from ackwise.core.commands import ByTransaction
from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION
from ackwise.core.settlement import Outcome, Retry
from ackwise.fluent.messages import Acked, Items, items_of, target_of


class FluentTransaction:
    """Collects acks, nacks and pushes and commits them together, or none of them.

    Usage::

        client.transaction().ack(message).queue("next").partition("p").push([{"data": 1}]).commit()
    """

    def __init__(self, connection: Connection) -> None:
        self._steps = connection.transaction()
        self._queue: str | None = None
        self._partition = DEFAULT_PARTITION
        self._count = 0

    def ack(self, message: Acked) -> FluentTransaction:
        """Ack a message."""
        self._steps.settle(target_of(message), Outcome.ACK)
        self._count += 1
        return self

    def nack(self, message: Acked, error: str | BaseException | None = None) -> FluentTransaction:
        """Record a failure of a message.

        If you name the message by ids, give its `lease_id`, too. Without it, a repeated commit could fail the delivery
        of another consumer, which has the message by then.
        """
        target = target_of(message)
        if isinstance(target, ByTransaction) and target.lease_id is None:
            raise BadInput("a nack in a transaction needs a message, or ids with a lease_id")
        self._steps.settle(target, Retry(error=error))
        self._count += 1
        return self

    def queue(self, name: str) -> FluentTransaction:
        """Send the next pushes to this queue."""
        self._queue, self._partition = name, DEFAULT_PARTITION
        return self

    def partition(self, name: str) -> FluentTransaction:
        """Send the next pushes to this partition of the queue."""
        self._partition = name
        return self

    def push(self, items: Items) -> FluentTransaction:
        """Push one item or a list of items to the queue named last."""
        if self._queue is None:
            raise BadInput("the push has no queue; call .queue(name) before .push(items)")
        for item in items_of(items, self._partition):
            self._steps.push(
                self._queue,
                item.payload,
                partition=self._partition,
                priority=item.priority or 0,
                transaction_id=item.transaction_id,
                headers=item.headers,
                delay=item.delay,
            )
            self._count += 1
        return self

    def commit(self) -> TransactionDone:
        """Commit all steps, once.

        Raises `RolledBack` if another consumer settled one of the messages. After `OutcomeUnknown` you may repeat the
        commit: its steps are done once.
        """
        if not self._count:
            raise BadInput("the transaction has no operations to commit")
        return self._steps.commit(strict=True)
