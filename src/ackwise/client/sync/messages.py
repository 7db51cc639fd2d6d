# Generated from ../aio/messages.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Putting messages in, taking them out, settling them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from ackwise.client import settling
from ackwise.client.claims import Start, claim_command
from ackwise.client.held import Held
from ackwise.client.moments import moment, seconds
from ackwise.client.payloads import new_message, new_messages
from ackwise.client.settling import Entry, Target
from ackwise.client.sync.batch import Batch
from ackwise.client.sync.lease import Lease
from ackwise.client.sync.transaction import Transaction
from ackwise.client.transport import Transport
from ackwise.core.answers import Handed, Receipts, Settled
from ackwise.core.commands import ByLease, Claim, Extend, Push, Settle, Settlement
from ackwise.core.limits import Seconds, lease_micros
from ackwise.core.messages import DEFAULT_PARTITION, Receipt
from ackwise.core.policy import Exclusivity, Order
from ackwise.core.settlement import Outcome, Verdict


class MessageVerbs:
    """The verbs about messages."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._held = Held()

    @property
    def transport(self) -> Transport:
        """What it stands on, for whoever speaks in commands."""
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
        """Append one message; when this returns it is on disk. An unknown queue is made with the default policy.

        Bytes go as they are, anything else as JSON. The same `transaction_id` again answers `duplicate`.
        """
        message = new_message(payload, partition, priority, transaction_id, headers, delay, content_type)
        receipts: Receipts = self._transport.send(Push(queue=queue, messages=[message]))
        return receipts[0]

    def push_many(
        self, queue: str, payloads: Iterable[object], *, partition: str = DEFAULT_PARTITION, priority: int = 0
    ) -> Receipts:
        """Append many in one commit, all or none; an `Item` among them has options of its own."""
        messages = new_messages(payloads, partition, priority)
        receipts: Receipts = self._transport.send(Push(queue=queue, messages=messages))
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
        """Take up to `max` messages under one lease, waiting up to `wait` seconds for the first.

        The batch stops at `max_bytes` of payload, 16 MiB by default, and has at least one message.
        An empty batch says why. With a `key` the same call again gives the same messages, as far as they are
        not settled. With `auto_ack` there is no lease and nothing to settle.
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
        return self.batch(self._transport.claim(command, seconds(wait, "wait")), command)

    def batch(self, handed: Handed, command: Claim) -> Batch:
        """What a claim that the transport carried brought, to be settled and given back like any other."""
        return Batch(handed, Lease(self._transport, self._held, handed.claimed, keyed=command.key is not None))

    def settle(self, entries: Iterable[Entry], *, atomic: bool = False, strict: bool = False) -> list[Settled]:
        """Settle many: pairs of (delivery, batch or id) and an outcome: a word, or an exception.

        Answers a verdict each, refusals included. With `atomic` any refusal but `already` undoes the whole call;
        with `strict` besides an ack of what ended before does, if that was no ack.
        """
        given = list(entries)
        settlements = [settling.entry(one) for one in given]
        asked = self._held.ask(settlements)
        try:
            command = Settle(entries=settlements, atomic=atomic, strict=strict)
            answers: list[Settled] = self._transport.send(command)
        finally:
            self._held.answered(asked)
        targets: list[Target] = [one.selector if isinstance(one, Settlement) else one[0] for one in given]
        settling.note_all(self._held, targets, settlements, answers)
        return answers

    def extend(self, lease_id: str, duration: Seconds) -> datetime:
        """Hold a lease until `duration` seconds from now; its new deadline."""
        answer = self._transport.send(Extend(lease_id=lease_id, lease=lease_micros(duration)))
        deadline = settling.deadline_of(answer)
        self._held.extended(lease_id, deadline)
        return moment(deadline)

    def release(self, lease_id: str) -> Verdict:
        """Hand everything a lease still holds back without spending a failure."""
        (answer,) = self.settle([Settlement(selector=ByLease(lease_id), outcome=Outcome.RELEASE)])
        return settling.verdict_of(answer)

    def transaction(self) -> Transaction:
        """Collect settlements and pushes that happen together or not at all."""
        return Transaction(self._transport, self._held)
