"""`POST /v1/claim`: with or without waiting, settling and claiming ahead; and `POST /v1/stop`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.broker.handing import release
from ackwise.core.answers import Handed, Settled, nothing
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Claim, Settle
from ackwise.core.errors import BadInput, StoreError
from ackwise.core.native import claiming
from ackwise.core.native.settling import settlement
from ackwise.dialects.http import ARROW, Answer, Call, Gone, Route, answer
from ackwise.server.native import arrow, handing
from ackwise.server.native.polls import Polls
from ackwise.server.native.reading import wants_arrow
from ackwise.store.port import SHORT_READ

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
        if body.grants_only:
            claiming.check_grants_only(body)
            return Answer(handing.one(body, (), await self._granted(call, claim)))
        settle = None if body.settle is None else Settle(entries=list(map(settlement, body.settle)), atomic=body.atomic)
        if ahead is not None:
            settled, batches = await self._broker.claim_ahead(settle, claim, ahead)
            await self._unless_gone(call, batches)
            size = sum(one.claimed.count for one in batches)
            return Answer(await self._built(size, handing.ahead, body, settled, batches))
        settled, handed = await self._claimed(call, body.poll, settle, claim, wait)
        await self._unless_gone(call, [handed])
        size = handed.claimed.count
        if as_arrow:
            return Answer(await self._built(size, arrow.claim, body, settled, handed), content_type=ARROW)
        return Answer(await self._built(size, handing.one, body, settled, handed))

    async def _granted(self, call: Call, claim: Claim) -> Handed:
        """Nothing is read. With a key it is kept for a client that went away meanwhile: that one will ask again."""
        if self._broker.draining:
            return nothing(claim, EmptyReason.DRAINING)
        if call.gone:
            raise Gone
        handed = Handed(await self._broker.send(claim), ())
        if claim.key is None:
            await self._unless_gone(call, [handed])
        return handed

    async def _claimed(
        self, call: Call, poll: str | None, settle: Settle | None, claim: Claim, wait: float
    ) -> tuple[list[Settled], Handed]:
        """A settlement is answered whatever becomes of the claim behind it, so it never waits with one."""
        if settle is None and not wait:
            return [], await self._broker.claim(claim)
        settled: list[Settled] = []
        if settle is not None:
            settled, handed = await self._broker.settle_and_claim(settle, claim)
            if not wait or handed.claimed.grants or handed.claimed.empty in _FINAL:
                return settled, handed
        try:
            return settled, await self._waited(call, poll, claim, wait)
        except StoreError:
            if settle is None:
                raise
            return settled, nothing(claim, EmptyReason.UNAVAILABLE)

    async def _waited(self, call: Call, poll: str | None, claim: Claim, wait: float) -> Handed:
        if poll is None:
            return await call.unless_gone(self._broker.claim(claim, wait))
        with self._polls.named(poll) as stopped:
            found = await call.unless_gone(self._broker.claim(claim, wait, stopped))
            return nothing(claim, EmptyReason.DRAINING) if stopped.done() and not found.claimed.grants else found

    async def _unless_gone(self, call: Call, batches: Sequence[Handed]) -> None:
        """What was claimed for a client that went away meanwhile goes back at once."""
        if not call.gone:
            return
        for one in batches:
            await self._give_back(one)
        raise Gone

    async def _give_back(self, handed: Handed) -> None:
        back = release([handed.claimed])
        if back is not None:
            await self._broker.send(back)

    async def _built(self, size: int, build: Callable[..., bytes], *arguments: Any) -> bytes:
        """A large answer is written beside the loop, which has others to serve."""
        if size <= SHORT_READ:
            return build(*arguments)
        built: bytes = await self._broker.in_thread(build, *arguments)
        return built

    async def stop(self, call: Call) -> Answer:
        body = await call.read(_STOP)
        return answer({"stopped": self._polls.stop(body.polls)})
