# Generated from ../aio/transaction.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Ack here and push there, together or not at all."""

from __future__ import annotations

from ackwise.client.sync import Connection
from ackwise.core.answers import TransactionDone
from ackwise.core.commands import ByTransaction
from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION
from ackwise.core.outcomes import Retry
from ackwise.core.settlement import Outcome
from ackwise.fluent.messages import Acked, Items, items_of, target_of


class FluentTransaction:
    """Usage::

    client.transaction().ack(message).queue("next").partition("p").push([{"data": 1}]).commit()
    """

    def __init__(self, connection: Connection) -> None:
        self._steps = connection.transaction()
        self._queue: str | None = None
        self._partition = DEFAULT_PARTITION
        self._count = 0

    def ack(self, message: Acked) -> FluentTransaction:
        self._steps.settle(target_of(message), Outcome.ACK)
        self._count += 1
        return self

    def nack(self, message: Acked, error: str | BaseException | None = None) -> FluentTransaction:
        """By its ids only with its `lease_id`: else a commit could not be told from its repeat, and would fail whoever
        holds the message by then."""
        target = target_of(message)
        if isinstance(target, ByTransaction) and target.lease_id is None:
            raise BadInput("a nack in a transaction names a message, or has a lease_id beside its ids")
        self._steps.settle(target, Retry(error=error))
        self._count += 1
        return self

    def queue(self, name: str) -> FluentTransaction:
        """Where the next pushes go."""
        self._queue, self._partition = name, DEFAULT_PARTITION
        return self

    def partition(self, name: str) -> FluentTransaction:
        self._partition = name
        return self

    def push(self, items: Items) -> FluentTransaction:
        if self._queue is None:
            raise BadInput("say where to push to: .queue(name) comes before .push(items)")
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
        """All of it, once. It raises `RolledBack` when something of it was done by somebody else; after an
        `OutcomeUnknown` it may be repeated, and is done once."""
        if not self._count:
            raise BadInput("the transaction has no operations to commit")
        return self._steps.commit(strict=True)
