"""`POST /v1/claim`: with or without waiting, settling and claiming ahead; and `POST /v1/stop`."""

from __future__ import annotations

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core.answers import Claimed, Handed, Settled, nothing
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Claim, Settle
from ackwise.core.errors import AnswersFull, BadInput, StoreError
from ackwise.core.native import claiming
from ackwise.core.native.settling import settlement
from ackwise.dialects.handover import Handover, build
from ackwise.dialects.http import ARROW, JSON, Answer, Call, Gone, Route, answer
from ackwise.server.native import arrow, handing
from ackwise.server.native.polls import Polls
from ackwise.server.native.reading import wants_arrow

_BODY = msgspec.json.Decoder(claiming.ClaimBody)
_STOP = msgspec.json.Decoder(claiming.StopBody)
_FINAL = (EmptyReason.ENDED, EmptyReason.DRAINING, EmptyReason.UNAVAILABLE)


def routes(broker: AsyncBroker) -> list[Route]:
    claims = _Claims(broker)
    return [Route("POST", "/v1/claim", claims.claim), Route("POST", "/v1/stop", claims.stop)]


class _Claims:
    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker
        self._polls = Polls()

    async def claim(self, call: Call) -> Answer:
        body = await call.read(_BODY)
        as_arrow = wants_arrow(call)
        if as_arrow:
            arrow.needed_to_write()
            if body.ahead is not None:
                raise BadInput("several batches do not fit into one Arrow stream: leave out ahead")
            if body.grants_only:
                raise BadInput("grants are answered as JSON: leave out grants_only, or Arrow")
        claim, wait, ahead = claiming.command(body), claiming.wait_of(body), claiming.ahead_of(body)
        handover = call.hand_over()
        if body.grants_only:
            claiming.check_grants_only(body)
            return Answer(handing.one(body, (), await self._granted(call, handover, claim)))
        claim.most_bytes = handover.bound(claim.most_bytes)
        settle = None if body.settle is None else Settle(entries=list(map(settlement, body.settle)), atomic=body.atomic)
        if ahead is not None:
            settled, batches = await self._broker.claim_ahead(settle, claim, ahead, handover.gate)
            claims = [batch.claimed for batch in batches]
            self._keep(call, handover, *claims)
            return Answer(await build(self._broker, claims, handing.ahead, body, settled, batches))
        settled, handed = await self._claimed(call, handover, body.poll, settle, claim, wait)
        self._keep(call, handover, handed.claimed)
        write, kind = (arrow.claim, ARROW) if as_arrow else (handing.one, JSON)
        written = await build(self._broker, [handed.claimed], write, body, settled, handed)
        return Answer(written, content_type=kind)

    async def _granted(self, call: Call, handover: Handover, claim: Claim) -> Handed:
        """Nothing is read. With a key it is kept for a client that went away meanwhile: that one will ask again."""
        if self._broker.draining:
            return nothing(claim, EmptyReason.DRAINING)
        if call.gone:
            raise Gone
        handed = Handed(await self._broker.send(claim), ())
        if claim.key is None:
            self._keep(call, handover, handed.claimed)
        return handed

    async def _claimed(
        self, call: Call, handover: Handover, poll: str | None, settle: Settle | None, claim: Claim, wait: float
    ) -> tuple[list[Settled], Handed]:
        """A settlement is answered whatever becomes of the claim behind it, so it never waits with one."""
        if settle is None and not wait:
            return [], await self._broker.claim(claim, gate=handover.gate)
        settled: list[Settled] = []
        if settle is not None:
            settled, handed = await self._broker.settle_and_claim(settle, claim, gate=handover.gate)
            if not wait or handed.claimed.grants or handed.claimed.empty in _FINAL:
                return settled, handed
        try:
            return settled, await self._waited(call, handover, poll, claim, wait)
        except (StoreError, AnswersFull):
            if settle is None:
                raise
            return settled, nothing(claim, EmptyReason.UNAVAILABLE)

    async def _waited(self, call: Call, handover: Handover, poll: str | None, claim: Claim, wait: float) -> Handed:
        if poll is None:
            return await call.unless_gone(self._broker.claim(claim, wait, gate=handover.gate))
        with self._polls.named(poll) as stopped:
            found = await call.unless_gone(self._broker.claim(claim, wait, stopped, handover.gate))
            return nothing(claim, EmptyReason.DRAINING) if stopped.done() and not found.claimed.grants else found

    def _keep(self, call: Call, handover: Handover, *claims: Claimed) -> None:
        """Release the claims if the answer does not reach the client."""
        handover.keep(self._broker, *claims)
        if call.gone:
            raise Gone

    async def stop(self, call: Call) -> Answer:
        body = await call.read(_STOP)
        return answer({"stopped": self._polls.stop(body.polls)})
