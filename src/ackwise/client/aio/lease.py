"""Lease of a batch: settles and extends it, and tracks whether it is held."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from ackwise.client.aio.traced_transport import AsyncTracedTransport
from ackwise.client.settlements import HeldLeases, at_exit, deadline_of, is_settled, verdict_of
from ackwise.client.transport import AsyncTransport
from ackwise.core.answers import Claimed, Extended, Settled
from ackwise.core.commands import Extend, Selector, Settle, Settlement
from ackwise.core.errors import AckwiseError, LeaseLost
from ackwise.core.settlement import SETTLING, Reject, Retry, Verdict
from ackwise.core.validation import Seconds, lease_micros
from ackwise.wire.timestamps import moment


class LeaseExtensions(Protocol):
    """Extends leases while work runs under them."""

    def begin(self, lease: AsyncLease) -> None: ...

    def end(self, lease: AsyncLease) -> None: ...


class AsyncLease:
    """The lease of one claim: settles and extends it, and tracks whether it is still held."""

    __slots__ = ("_held", "_transport", "_working", "chosen", "claimed", "deadline", "duration", "ended", "in_doubt")

    def __init__(
        self,
        transport: AsyncTransport,
        held: HeldLeases,
        claimed: Claimed,
        keyed: bool = False,
        working: LeaseExtensions | None = None,
    ) -> None:
        self._transport, self._held, self._working, self.claimed = transport, held, working, claimed
        self.deadline = claimed.deadline
        self.ended = not claimed.lease_no
        """Whether nothing is left to settle: all messages are settled, or the claim had no lease."""
        self.in_doubt = False
        """Whether a settlement was refused: the lease may be lost."""
        self.chosen = 0
        """How many deadlines `extend` has set. A keeper's answer to an earlier request does not replace them."""
        now = transport.now() if claimed.lease_no else 0
        self.duration = max(claimed.deadline - now, 1000)
        """Microseconds that the lease lasted at first. An extension lasts as long."""
        # A claim with a key outlives its connection: a later claim with the same key takes the lease over.
        if claimed.lease_no and not keyed:
            held.add(claimed, now)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.claimed.lease_id}>"

    @property
    def is_ending(self) -> bool:
        """Whether the lease has ended or a settlement of it is in flight.

        A failed extension then does not mean that the lease is lost. The answer to the settlement decides.
        """
        return self.ended or self._held.is_being_settled(self.claimed.lease_id)

    @property
    def expires_at(self) -> datetime:
        """When the lease expires, by the wall clock."""
        return self.shown(self.deadline)

    def shown(self, instant: int) -> datetime:
        """An instant of the anchored clock as people read it."""
        return moment(self._transport.wall_of(instant))

    def remaining(self, now: int) -> int:
        """Microseconds until the deadline."""
        return self.deadline - now

    @property
    def is_traced(self) -> bool:
        """Whether the connection makes OpenTelemetry spans."""
        return isinstance(self._transport, AsyncTracedTransport)

    def begin_work(self) -> None:
        """Extend the lease in the background until `end_work`."""
        if self._working is not None:
            self._working.begin(self)

    def end_work(self) -> None:
        if self._working is not None:
            self._working.end(self)

    async def settle(self, settlement: Settlement) -> Verdict:
        """Send one settlement. Returns its verdict, also `already`. Raises if it is refused."""
        if not self.claimed.lease_no:
            return Verdict.ALREADY
        answer: Settled | None = None
        leases = self._held.begin_settling((settlement,))
        try:
            (answer,) = await self._transport.send(Settle(entries=[settlement]))
        finally:
            self._held.end_settling(leases, settlement.selector, answer)
        self._note_verdict(answer)
        return answer.verdict if answer.verdict in SETTLING else verdict_of(answer)

    def note(self, selector: Selector, answer: Settled) -> None:
        """Update the lease's state from the answer to a settlement."""
        self._note_verdict(answer)
        self._held.note(selector, answer)

    def _note_verdict(self, answer: Settled) -> None:
        self.ended = self.ended or answer.lease_ended
        self.in_doubt = self.in_doubt or answer.verdict is Verdict.STALE or answer.unacked

    async def settle_at_exit(self, selector: Selector, problem: BaseException | None) -> tuple[bool, Verdict | None]:
        """Settle at the end of a `with` block. Returns whether to suppress the exception, and the verdict.

        `Retry` and `Reject` are suppressed.
        """
        if self.ended:
            return False, None
        chosen, verdict = isinstance(problem, Retry | Reject), None
        try:
            verdict = await self.settle(at_exit(selector, problem))
        except AckwiseError as refusal:
            if problem is None or chosen:
                raise
            problem.add_note(f"ackwise could not record this failure: {refusal}")
        return chosen, verdict

    async def extend(self, duration: Seconds | None = None) -> datetime:
        """Extend the lease to `duration` seconds from now, by default its first duration. Returns the new deadline."""
        micros = self.duration if duration is None else lease_micros(duration)
        answer: Extended | LeaseLost
        try:
            answer = await self._transport.send(Extend(lease_id=self.claimed.lease_id, lease=micros))
        except LeaseLost as problem:
            answer = problem
        deadline = self._deadline_from(answer)
        self.chosen += 1
        self._set_deadline(deadline)
        return self.expires_at

    def extension(self) -> Extend:
        """The command that extends the lease by its first duration. Never shortens a lease that you extended longer."""
        return Extend(lease_id=self.claimed.lease_id, lease=self.duration, keep_later=True)

    def note_extension(self, answer: Extended | AckwiseError, chosen: int) -> None:
        """Update the lease's state from the answer to `extension`. Raises if the lease is not extended.

        `chosen` is the lease's `chosen` when the request was sent. Answers may arrive in another order than their
        requests, so the later deadline stays. After a call of `extend` only that call's deadline counts.
        """
        deadline = self._deadline_from(answer)
        self._set_deadline(max(self.deadline, deadline) if chosen == self.chosen else self.deadline)

    def _deadline_from(self, answer: Extended | AckwiseError) -> int:
        """The deadline that an extension got. Raises if the lease is not extended."""
        try:
            if isinstance(answer, AckwiseError):
                raise answer
            return deadline_of(answer)
        except LeaseLost as problem:
            if is_settled(problem):
                self.ended = True
                self._held.drop(self.claimed.lease_id)
            raise

    def _set_deadline(self, deadline: int) -> None:
        self.deadline = deadline
        self.in_doubt = False
        self._held.extended(self.claimed.lease_id, deadline)
