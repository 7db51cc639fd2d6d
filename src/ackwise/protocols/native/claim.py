"""`POST /v1/claim`, and `POST /v1/stop`, which ends waiting claims by their poll names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core.answers import Claimed, Handed, Settled, empty_answer
from ackwise.core.commands import Claim, Settle
from ackwise.core.errors import AckwiseError, BadInput, Draining
from ackwise.core.lane_selection import EmptyReason
from ackwise.protocols.answer_memory import PendingAnswer, build
from ackwise.protocols.http_request import Call, ClientDisconnected
from ackwise.protocols.http_response import ARROW, JSON, Answer, Route, answer
from ackwise.protocols.native import arrow, claim_json
from ackwise.protocols.native.request_arguments import wants_arrow
from ackwise.wire import claim as wire_claim
from ackwise.wire.settle import settlement

_BODY = msgspec.json.Decoder(wire_claim.ClaimBody)
_STOP = msgspec.json.Decoder(wire_claim.StopBody)
_FINAL = (EmptyReason.ENDED, EmptyReason.DRAINING, EmptyReason.UNAVAILABLE)


class LeaseQueues:
    """Queues of the newest leases that this server granted, for logs and metrics. Forgets the oldest leases."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._queues: dict[str, str] = {}

    def add(self, claimed: Claimed) -> None:
        if not claimed.lease_no or not claimed.grants:
            return
        queue = claimed.grants[0].queue
        if len(claimed.grants) == 1 or all(grant.queue == queue for grant in claimed.grants):
            self._queues[claimed.lease_id] = queue
            if len(self._queues) > self._most:
                del self._queues[next(iter(self._queues))]

    def of(self, lease_id: str | None) -> str:
        """The queue of a lease. Empty if the lease is not known or has messages of several queues."""
        return self._queues.get(lease_id or "", "")


def routes(broker: AsyncBroker, leases: LeaseQueues) -> list[Route]:
    claims = _Claims(broker, leases)
    return [Route("POST", "/v1/claim", claims.claim), Route("POST", "/v1/stop", claims.stop)]


class _Claims:
    """Handlers of `/v1/claim` and `/v1/stop`."""

    def __init__(self, broker: AsyncBroker, leases: LeaseQueues) -> None:
        self._broker, self._leases = broker, leases
        self._polls = Polls()

    async def claim(self, call: Call) -> Answer:
        body = await call.read(_BODY)
        as_arrow = wants_arrow(call)
        if as_arrow:
            _check_arrow(body)
        claim, wait, ahead = wire_claim.command(body), wire_claim.wait_of(body), wire_claim.ahead_of(body)
        call.queue = claim.queue or ""
        pending = call.begin_answer()
        if body.grants_only:
            wire_claim.check_grants_only(body)
            granted = await self._claim_grants(call, pending, claim)
            return Answer(claim_json.write_claim(body, (), self._shown(granted)))
        claim.most_bytes = pending.bound(claim.most_bytes)
        settle = None if body.settle is None else Settle(entries=list(map(settlement, body.settle)), atomic=body.atomic)
        if ahead is not None:
            settled, batches = await self._broker.claim_ahead(settle, claim, ahead, pending.gate)
            claims = [batch.claimed for batch in batches]
            self._keep(call, pending, *claims)
            shown = list(map(self._shown, batches))
            return Answer(await build(self._broker, claims, claim_json.write_batches, body, settled, shown))
        settled, handed = await self._settle_and_claim(call, pending, body.poll, settle, claim, wait=wait)
        self._keep(call, pending, handed.claimed)
        write, content_type = (arrow.write_claim, ARROW) if as_arrow else (claim_json.write_claim, JSON)
        written = await build(self._broker, [handed.claimed], write, body, settled, self._shown(handed))
        return Answer(written, content_type=content_type)

    def _shown(self, handed: Handed) -> Handed:
        """The answer with instants of the wall clock."""
        claimed = handed.claimed
        until = None if claimed.until is None else self._broker.wall_of(claimed.until)
        deadline = self._broker.wall_of(claimed.deadline) if claimed.lease_no else 0
        return Handed(msgspec.structs.replace(claimed, deadline=deadline, until=until), handed.messages)

    async def _claim_grants(self, call: Call, pending: PendingAnswer, claim: Claim) -> Handed:
        """Claims without reading messages.

        A claim with a key stays granted if the client disconnects: the client repeats it with the same key.
        """
        if self._broker.draining:
            return empty_answer(claim, EmptyReason.DRAINING)
        if call.disconnected:
            raise ClientDisconnected
        handed = Handed(await self._broker.send(claim), ())
        self._leases.add(handed.claimed)
        if claim.key is None:
            self._keep(call, pending, handed.claimed)
        return handed

    async def _settle_and_claim(
        self, call: Call, pending: PendingAnswer, poll: str | None, settle: Settle | None, claim: Claim, *, wait: float
    ) -> tuple[list[Settled], Handed]:
        """Settles, then claims, and waits for messages if the request says so.

        Settlements do not wait for messages. The answer has their verdicts even if the claim fails.
        """
        if settle is None and not wait:
            return [], await self._broker.claim(claim, gate=pending.gate)
        settled: list[Settled] = []
        if settle is not None:
            settled, handed = await self._broker.settle_and_claim(settle, claim, gate=pending.gate)
            if not wait or handed.claimed.grants or handed.claimed.empty in _FINAL:
                return settled, handed
        try:
            return settled, await self._wait(call, pending, poll, claim, wait)
        except AckwiseError as problem:
            if settle is None:
                raise
            draining = isinstance(problem, Draining)
            return settled, empty_answer(claim, EmptyReason.DRAINING if draining else EmptyReason.UNAVAILABLE)

    async def _wait(self, call: Call, pending: PendingAnswer, poll: str | None, claim: Claim, wait: float) -> Handed:
        if poll is None:
            return await call.unless_gone(self._broker.claim(claim, wait, gate=pending.gate))
        with self._polls.stoppable(poll) as stopped:
            handed = await call.unless_gone(self._broker.claim(claim, wait, stopped, gate=pending.gate))
            return empty_answer(claim, EmptyReason.DRAINING) if stopped.done() and not handed.claimed.grants else handed

    def _keep(self, call: Call, pending: PendingAnswer, *claims: Claimed) -> None:
        """Release the claims if the answer does not reach the client."""
        for claimed in claims:
            self._leases.add(claimed)
        call.messages += sum(grant.hi - grant.lo for claimed in claims for grant in claimed.grants)
        pending.keep(self._broker, *claims)
        if call.disconnected:
            raise ClientDisconnected

    async def stop(self, call: Call) -> Answer:
        body = await call.read(_STOP)
        return answer({"stopped": self._polls.stop(body.polls)})


def _check_arrow(body: wire_claim.ClaimBody) -> None:
    """Raises `BadInput` for a claim whose answer cannot be one Arrow stream."""
    arrow.needed_to_write()
    if body.ahead is not None:
        raise BadInput("an Arrow stream holds one batch; leave out ahead")
    if body.grants_only:
        raise BadInput("grants are answered as JSON; leave out grants_only or do not accept Arrow")


class Polls:
    """Waiting claims by poll name. A client stops its poll to get an answer instead of closing the connection.

    A client that closes the connection cannot know whether the server has claimed messages for it.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[None]] = {}

    @contextmanager
    def stoppable(self, name: str) -> Iterator[asyncio.Future[None]]:
        """Future that completes when the poll is stopped. A new poll stops an earlier one of the same name."""
        self.stop([name])
        stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[name] = stopped
        try:
            yield stopped
        finally:
            if self._waiting.get(name) is stopped:
                del self._waiting[name]

    def stop(self, names: Iterable[str]) -> int:
        """Stops polls and returns how many of them were waiting."""
        waiting = [future for name in names if (future := self._waiting.get(name)) is not None and not future.done()]
        for future in waiting:
            future.set_result(None)
        return len(waiting)
