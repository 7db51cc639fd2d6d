# Generated from ../aio/transaction.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Transactions: settlements and pushes in one commit."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Literal

from ackwise.client import settlements
from ackwise.client.payloads import TransactionIds, new_message
from ackwise.client.settlements import Ask, HeldLeases, Target, selector_of
from ackwise.client.transport import Transport
from ackwise.core import commands
from ackwise.core.answers import Receipts, TransactionDone
from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION, NewMessage
from ackwise.core.policy import QueuePolicy
from ackwise.core.settlement import Outcome, Reject, Retry
from ackwise.core.validation import Seconds
from ackwise.wire import push as wire_push


class Transaction:
    """Collects settlements and pushes. `commit` applies all of them in one commit of the store, or none.

    Usage::

        with connection.transaction() as step:
            step.ack(delivery).push("results", answer)

    The transaction commits when the block ends and does nothing when the block raises. Use a transaction once. You may
    repeat a commit that raised: all pushes have transaction ids, so nothing is stored twice.
    """

    def __init__(self, transport: Transport, held: HeldLeases, new_queue_policy: QueuePolicy) -> None:
        self._transport, self._held, self._new_queue_policy = transport, held, new_queue_policy
        self._targets: list[Target] = []
        self._settlements: list[commands.Settlement] = []
        self._pushes: dict[str, list[NewMessage]] = {}
        self._required: list[str] = []
        self._ids = TransactionIds()
        self._committed = False

    def ack(self, target: Target) -> Transaction:
        """Ack `target`: a delivery, a whole batch, or the id of either."""
        return self.settle(target, Outcome.ACK)

    def retry(
        self, target: Target, *, delay: Seconds | None = None, error: str | BaseException | None = None
    ) -> Transaction:
        """Record a failure of `target`. See `Delivery.retry`."""
        return self.settle(target, Retry(delay=delay, error=error))

    def reject(self, target: Target, reason: str | BaseException = "rejected") -> Transaction:
        """Dead-letter `target`."""
        return self.settle(target, Reject(reason))

    def release(self, target: Target) -> Transaction:
        """Return `target` to the queue. A release costs no failure."""
        return self.settle(target, Outcome.RELEASE)

    def settle(self, target: Target, ask: Ask) -> Transaction:
        """Settle `target` with any outcome: its name, or an exception.

        An exception other than `Retry` and `Reject` means a retry.
        """
        self._check_open()
        self._settlements.append(settlements.settlement_for(selector_of(target), ask))
        self._targets.append(target)
        return self

    def push(
        self,
        queue: str,
        payload: object,
        *,
        partition: str = DEFAULT_PARTITION,
        priority: int = 0,
        transaction_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        delay: Seconds | None = None,
        content_type: str | None = None,
    ) -> Transaction:
        """Push one message. See `Connection.push`."""
        self._check_open()
        txid = self._ids() if transaction_id is None else transaction_id
        message = new_message(
            payload,
            partition,
            priority,
            transaction_id=txid,
            headers=headers,
            delay=delay,
            content_type=content_type,
        )
        self._pushes.setdefault(queue, []).append(message)
        return self

    def require(self, lease: Target) -> Transaction:
        """Commit only if this lease is still held. `lease` is a batch, a delivery, or the id of either."""
        lease_id = settlements.lease_of(selector_of(lease))
        self._required.append("" if lease_id is None else lease_id)
        return self

    def _check_open(self) -> None:
        if self._committed:
            raise BadInput("the transaction is committed already; begin a new one")

    def commit(self, on_duplicate: Literal["ok", "fail"] = "ok", *, strict: bool = False) -> TransactionDone:
        """Apply all steps in one commit.

        `on_duplicate` decides about a push whose transaction id is known: `"ok"` skips the message, `"fail"` rolls the
        transaction back. With `strict` a delivery that is settled already rolls it back, too, unless an earlier try of
        this transaction did all its steps.
        """
        self._check_open()
        command = commands.Transaction(
            settlements=self._settlements,
            pushes=[
                commands.Push(queue=queue, messages=messages, create=self._new_queue_policy)
                for queue, messages in self._pushes.items()
            ],
            required_leases=tuple(self._required),
            on_duplicate="fail" if strict else on_duplicate,
            on_already="fail" if strict else "ok",
            repeatable=strict or on_duplicate == "ok",
        )
        leases = self._held.begin_settling(self._settlements)
        try:
            done = self._transport.send(command)
        finally:
            self._held.end_settling(leases)
        self._committed = True
        done.pushed = [self._as_first_push(receipts) for receipts in done.pushed]
        settlements.note_all(self._held, self._targets, self._settlements, done.settled)
        return done

    def _as_first_push(self, receipts: Receipts) -> Receipts:
        """Receipts as the first try would have returned them: its messages are no duplicates."""
        if any(receipt.status == "duplicate" and self._ids.made(receipt.transaction_id) for receipt in receipts):
            return wire_push.receipts(wire_push.PushAnswer(receipts=self._ids.as_first_push(receipts)), [])
        return receipts

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem is None and not self._committed and (self._settlements or self._pushes):
            self.commit()
