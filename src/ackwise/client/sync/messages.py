# Generated from ../aio/messages.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Methods of a connection that push, claim and settle messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from ackwise.client import settlements as client_settlements
from ackwise.client.options import Start, claim_command
from ackwise.client.payloads import new_message, new_messages
from ackwise.client.settlements import Entry, HeldLeases, Target
from ackwise.client.sync.batch import Batch
from ackwise.client.sync.lease import Lease
from ackwise.client.sync.transaction import Transaction
from ackwise.client.sync.working_leases import WorkingLeases
from ackwise.client.transport import Transport
from ackwise.core.answers import Handed, Receipts, Settled
from ackwise.core.commands import ByLease, Claim, Extend, Push, Settle, Settlement
from ackwise.core.messages import DEFAULT_PARTITION, Receipt
from ackwise.core.policy import NEW_QUEUE_POLICY, Exclusivity, Order, QueuePolicy
from ackwise.core.settlement import Outcome, Verdict
from ackwise.core.validation import Seconds, lease_micros
from ackwise.wire.timestamps import moment, seconds


class MessageVerbs:
    """Push, claim, settle, extend, release, transaction."""

    new_queue_policy: QueuePolicy
    """The policy of the queues that this connection creates. You may replace it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._held = HeldLeases()
        self._working = WorkingLeases(transport)
        self.new_queue_policy = NEW_QUEUE_POLICY

    @property
    def transport(self) -> Transport:
        """The transport under this connection, for code that sends commands itself."""
        return self._transport

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
    ) -> Receipt:
        """Append one message to a queue. When `push` returns, the message is on disk.

        The payload is stored as it is if it is bytes, otherwise as JSON. A queue that does not exist is created with
        the default policy. A second push with the same `transaction_id` stores nothing. Its receipt says `duplicate`.
        `delay` is in seconds: the message becomes visible after it.
        """
        message = new_message(
            payload,
            partition,
            priority,
            transaction_id=transaction_id,
            headers=headers,
            delay=delay,
            content_type=content_type,
        )
        receipts = self._transport.send(Push(queue=queue, messages=[message], create=self.new_queue_policy))
        return receipts[0]

    def push_many(
        self, queue: str, payloads: Iterable[object], *, partition: str = DEFAULT_PARTITION, priority: int = 0
    ) -> Receipts:
        """Append many messages in one commit, all or none. Use an `Item` for a message with its own options."""
        messages = new_messages(payloads, partition, priority)
        receipts = self._transport.send(Push(queue=queue, messages=messages, create=self.new_queue_policy))
        return receipts

    def claim(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        max: int = 1,
        max_bytes: int | None = None,
        lease: Seconds | None = None,
        wait: Seconds = 0,
        partitions: Sequence[str] | None = None,
        priorities: Sequence[int] | None = None,
        namespace: str | None = None,
        task: str | None = None,
        max_partitions: int | None = None,
        exclusivity: Exclusivity | None = None,
        order: Order | None = None,
        owner: str | None = None,
        key: str | None = None,
        auto_ack: bool = False,
        start: Start = "all",
    ) -> Batch:
        """Claim up to `max` messages under one lease, waiting up to `wait` seconds for the first message.

        - `max_bytes` bounds the payload of the batch, 16 MiB by default. A larger single message is still delivered.
        - `lease` is the lease's duration in seconds, by default the queue's.
        - `key` makes the claim idempotent: the same call returns the same messages, except those settled meanwhile.
        - `auto_ack` acks the messages at delivery: the batch has no lease and needs no settlement.
        - `start` is where a new group begins: `"all"`, `"new"` or a datetime.

        If there is no message, the batch is empty and `batch.empty` is the reason.
        """
        command = claim_command(
            queue,
            group=group,
            max=max,
            max_bytes=max_bytes,
            lease=lease,
            partitions=partitions,
            priorities=priorities,
            namespace=namespace,
            task=task,
            max_partitions=max_partitions,
            exclusivity=exclusivity,
            order=order,
            owner=owner,
            key=key,
            auto_ack=auto_ack,
            start=start,
        )
        # Most claims do not wait. The integer 0 needs no check.
        waits = 0.0 if type(wait) is int and not wait else seconds(wait, "wait")
        return self.batch(self._transport.claim(command, waits), command)

    def batch(self, handed: Handed, command: Claim) -> Batch:
        """Build the batch of a claim that you sent through the transport. `close` releases it like any other batch."""
        keyed = command.key is not None
        return Batch(handed, Lease(self._transport, self._held, handed.claimed, keyed=keyed, working=self._working))

    def settle(self, entries: Iterable[Entry], *, atomic: bool = False, strict: bool = False) -> list[Settled]:
        """Settle many deliveries in one call. Returns one verdict per entry, refusals included.

        Each entry is a pair (target, outcome). The target is a delivery, a batch, or the id of either. The outcome is
        `"ack"`, `"retry"`, `"reject"`, `"release"`, or an exception: `Retry`, `Reject`, any other means a retry.

        With `atomic`, one refused entry undoes the whole call. The verdict `already` is no refusal. With `strict`, an
        ack of a delivery that ended before in another way undoes it, too.
        """
        entry_list = list(entries)
        settlements = [client_settlements.as_settlement(entry) for entry in entry_list]
        leases = self._held.begin_settling(settlements)
        try:
            command = Settle(entries=settlements, atomic=atomic, strict=strict)
            answers = self._transport.send(command)
        finally:
            self._held.end_settling(leases)
        targets: list[Target] = [entry.selector if isinstance(entry, Settlement) else entry[0] for entry in entry_list]
        client_settlements.note_all(self._held, targets, settlements, answers)
        return answers

    def extend(self, lease_id: str, duration: Seconds) -> datetime:
        """Extend a lease to `duration` seconds from now. Returns its new deadline."""
        answer = self._transport.send(Extend(lease_id=lease_id, lease=lease_micros(duration)))
        deadline = client_settlements.deadline_of(answer)
        self._held.extended(lease_id, deadline)
        return moment(self._transport.wall_of(deadline))

    def release(self, lease_id: str) -> Verdict:
        """Release all messages that a lease still holds. A release costs no failure."""
        (answer,) = self.settle([Settlement(selector=ByLease(lease_id), outcome=Outcome.RELEASE)])
        return client_settlements.verdict_of(answer)

    def transaction(self) -> Transaction:
        """Begin a transaction: settlements and pushes that are committed together or not at all."""
        return Transaction(self._transport, self._held, self.new_queue_policy)
