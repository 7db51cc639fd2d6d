"""Settlements and pushes that happen together or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Literal

from ackwise.client import settling
from ackwise.client.held import Held
from ackwise.client.minting import Mint
from ackwise.client.payloads import new_message
from ackwise.client.settling import Ask, Target, selector_of
from ackwise.client.transport import AsyncTransport
from ackwise.core import commands
from ackwise.core.answers import Receipts, TransactionDone
from ackwise.core.errors import BadInput
from ackwise.core.limits import Seconds
from ackwise.core.messages import DEFAULT_PARTITION, NewMessage
from ackwise.core.native import pushing
from ackwise.core.outcomes import Reject, Retry
from ackwise.core.settlement import Outcome


class AsyncTransaction:
    """Collects steps; `commit` does all of them in one commit of the store, or none and says why.

    Usage::

        async with connection.transaction() as step:
            step.ack(delivery).push("results", answer)

    commits when the block ends and does nothing when it raises. It is used once. Only a commit that failed may be
    repeated: what it pushes has transaction ids from the start, so that it is done once even if it had arrived.
    """

    def __init__(self, transport: AsyncTransport, held: Held) -> None:
        self._transport, self._held = transport, held
        self._targets: list[Target] = []
        self._settlements: list[commands.Settlement] = []
        self._pushes: dict[str, list[NewMessage]] = {}
        self._required: list[str] = []
        self._mint = Mint()
        self._committed = False

    def ack(self, target: Target) -> AsyncTransaction:
        """A delivery, a whole batch, or the id of either."""
        return self.settle(target, Outcome.ACK)

    def retry(
        self, target: Target, *, delay: Seconds | None = None, error: str | BaseException | None = None
    ) -> AsyncTransaction:
        return self.settle(target, Retry(delay=delay, error=error))

    def reject(self, target: Target, reason: str | BaseException = "rejected") -> AsyncTransaction:
        return self.settle(target, Reject(reason))

    def release(self, target: Target) -> AsyncTransaction:
        return self.settle(target, Outcome.RELEASE)

    def settle(self, target: Target, ask: Ask) -> AsyncTransaction:
        """Any outcome: a word, or an exception (`Retry`, `Reject`, or any other, which is a retry)."""
        self._check_open()
        self._settlements.append(settling.asked(selector_of(target), ask))
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
    ) -> AsyncTransaction:
        self._check_open()
        named = self._mint() if transaction_id is None else transaction_id
        message = new_message(payload, partition, priority, named, headers, delay, content_type)
        self._pushes.setdefault(queue, []).append(message)
        return self

    def require(self, lease: Target) -> AsyncTransaction:
        """Only if this lease (of a batch, a delivery, or by id) is still held at the commit."""
        lease_id = settling.lease_of(selector_of(lease))
        self._required.append("" if lease_id is None else lease_id)
        return self

    def _check_open(self) -> None:
        if self._committed:
            raise BadInput("the transaction was committed; begin another one")

    async def commit(self, on_duplicate: Literal["ok", "fail"] = "ok", *, strict: bool = False) -> TransactionDone:
        """Do it. `fail`: a push with a known transaction id rolls everything back; `ok`: it is left out.

        `strict`: so does anything that was settled before, unless all of it was done before, by an earlier try.
        """
        self._check_open()
        command = commands.Transaction(
            settlements=self._settlements,
            pushes=[commands.Push(queue=queue, messages=messages) for queue, messages in self._pushes.items()],
            required_leases=tuple(self._required),
            on_duplicate="fail" if strict else on_duplicate,
            on_already="fail" if strict else "ok",
            repeatable=strict or on_duplicate == "ok",
        )
        asked = self._held.ask(self._settlements)
        try:
            done: TransactionDone = await self._transport.send(command)
        finally:
            self._held.answered(asked)
        self._committed = True
        done.pushed = [self._told(receipts) for receipts in done.pushed]
        settling.note_all(self._held, self._targets, self._settlements, done.settled)
        return done

    def _told(self, receipts: Receipts) -> Receipts:
        if any(one.status == "duplicate" and self._mint.made(one.transaction_id) for one in receipts):
            return pushing.receipts(pushing.PushAnswer(receipts=self._mint.told(receipts)), [])
        return receipts

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem is None and not self._committed and (self._settlements or self._pushes):
            await self.commit()
