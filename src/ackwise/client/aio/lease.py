"""The lease behind a batch and its deliveries."""

from __future__ import annotations

from datetime import datetime

from ackwise.client.held import Held
from ackwise.client.moments import moment
from ackwise.client.settling import at_exit, deadline_of, is_settled, verdict_of
from ackwise.client.transport import AsyncTransport
from ackwise.core.answers import Claimed, Settled
from ackwise.core.commands import Extend, Selector, Settle, Settlement
from ackwise.core.errors import AckwiseError, LeaseLost
from ackwise.core.limits import MICROS, Seconds, lease_micros
from ackwise.core.outcomes import Reject, Retry
from ackwise.core.settlement import Verdict


class AsyncLease:
    """What one claim holds, and the one place where it is settled and extended."""

    __slots__ = ("_held", "_lasts", "_transport", "claimed", "deadline", "doubted", "ended")

    def __init__(self, transport: AsyncTransport, held: Held, claimed: Claimed, keyed: bool = False) -> None:
        self._transport, self._held, self.claimed = transport, held, claimed
        self.deadline = claimed.deadline
        self.ended = not claimed.lease_no
        """Nothing is left to settle: all of it was, or there never was a lease (auto-ack, empty)."""
        self.doubted = False
        """Something of it turned out not to be ours any more; perhaps nothing is."""
        now = transport.now() if claimed.lease_no else 0
        self._lasts = max(claimed.deadline - now, 1000)
        # A claim with a key outlives its connection: whoever repeats the key takes it over.
        if claimed.lease_no and not keyed:
            held.add(claimed, now)

    @property
    def lasts(self) -> float:
        """How many seconds it was given at first, and is given again when it is extended."""
        return self._lasts / MICROS

    @property
    def ends_itself(self) -> bool:
        """Whether it has ended, or something of it is being settled just now, and who does that will hear what is still
        ours: it is not lost then, even if it cannot be extended."""
        return self.ended or self._held.is_asked(self.claimed.lease_id)

    async def settle(self, settlement: Settlement) -> Verdict:
        """Ask for one outcome; a refusal is raised, `already` is answered."""
        if not self.claimed.lease_no:
            return Verdict.ALREADY
        asked = self._held.ask((settlement,))
        try:
            (answer,) = await self._transport.send(Settle(entries=[settlement]))
        finally:
            self._held.answered(asked)
        self.note(settlement.selector, answer)
        return verdict_of(answer)

    def note(self, selector: Selector, answer: Settled) -> None:
        self.ended = self.ended or answer.lease_ended
        self.doubted = self.doubted or answer.verdict is Verdict.STALE or answer.unacked
        self._held.note(selector, answer)

    async def settle_at_exit(self, selector: Selector, problem: BaseException | None) -> bool:
        """Settle as leaving a `with` block means; True when the exception was only the way to say so."""
        if self.ended:
            return False
        chosen = isinstance(problem, Retry | Reject)
        try:
            await self.settle(at_exit(selector, problem))
        except AckwiseError as refusal:
            if problem is None or chosen:
                raise
            problem.add_note(f"ackwise could not record this failure: {refusal}")
        return chosen

    async def extend(self, duration: Seconds | None = None) -> datetime:
        """Hold it for `duration` seconds from now, or for as long as at first."""
        lasts = self._lasts if duration is None else lease_micros(duration)
        try:
            self.deadline = deadline_of(await self._transport.send(Extend(lease_id=self.claimed.lease_id, lease=lasts)))
        except LeaseLost as problem:
            if is_settled(problem):
                self.ended = True
                self._held.drop(self.claimed.lease_id)
            raise
        self.doubted = False
        self._held.extended(self.claimed.lease_id, self.deadline)
        return moment(self.deadline)

    async def keep_alive(self) -> None:
        """Extend when half of the time has gone, or to see whether it is still ours when that is in doubt."""
        if not self.ended and (self.doubted or self._transport.now() > self.deadline - self._lasts // 2):
            await self.extend()
