"""`POST /api/v1/lease/:id/extend`."""

from __future__ import annotations

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import validation
from ackwise.core.commands import Extend
from ackwise.core.settlement import Verdict
from ackwise.protocols.http_request import Call, parse
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.queen.vocabulary import QueenContext, show_time

DEFAULT_SECONDS = 60.0


class _Body(msgspec.Struct):
    seconds: float | None = None


_decoder = msgspec.json.Decoder(_Body)


def routes(broker: AsyncBroker, _: QueenContext) -> list[Route]:
    async def extend(call: Call) -> Answer:
        """Moves the deadline to `seconds` from now, or to a minute from now for an empty body. Never shortens a lease.

        The lease covers all partitions of its pop.
        """
        (lease_id,) = call.params
        body = await call.body()
        seconds = parse(_decoder, body).seconds if body.strip() else None
        lease = validation.lease_micros(DEFAULT_SECONDS if seconds is None else max(seconds, 1.0))
        done = await broker.send(Extend(lease_id=lease_id, lease=lease, keep_later=True))
        until = None if done.deadline is None else show_time(broker.wall_of(done.deadline))
        fields = {
            "leaseId": lease_id,
            "success": done.deadline is not None,
            "renewed": int(done.deadline is not None),
            "newExpiresAt": until,
            "expiresAt": until,
            "lease_expires_at": until,
        }
        if done.deadline is None:
            fields["error"] = "Lease not found" if done.verdict is Verdict.UNKNOWN else "Lease already expired"
            fields["message"] = "invalid_lease"
        return answer(fields)

    return [Route("POST", "/api/v1/lease/{lease}/extend", extend)]
