"""`POST /api/v1/lease/:id/extend`."""

from __future__ import annotations

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import limits
from ackwise.core.answers import Extended
from ackwise.core.commands import Extend
from ackwise.core.settlement import Verdict
from ackwise.dialects.http import Answer, Call, Route, answer, parse
from ackwise.dialects.queen.words import Words, show_time

DEFAULT_SECONDS = 60.0


class _Body(msgspec.Struct):
    seconds: float | None = None


_decoder = msgspec.json.Decoder(_Body)


def routes(broker: AsyncBroker, _: Words) -> list[Route]:
    async def extend(call: Call) -> Answer:
        """An empty body means a minute; one lease covers every partition of its pop."""
        (lease_id,) = call.params
        body = await call.body()
        seconds = parse(_decoder, body).seconds if body.strip() else None
        wanted = limits.lease_micros(DEFAULT_SECONDS if seconds is None else max(seconds, 1.0))
        done: Extended = await broker.send(Extend(lease_id=lease_id, lease=wanted, keep_later=True))
        until = show_time(done.deadline)
        found = {
            "leaseId": lease_id,
            "success": done.deadline is not None,
            "renewed": int(done.deadline is not None),
            "newExpiresAt": until,
            "expiresAt": until,
            "lease_expires_at": until,
        }
        if done.deadline is None:
            found["error"] = "Lease not found" if done.verdict is Verdict.UNKNOWN else "Lease already expired"
            found["message"] = "invalid_lease"
        return answer(found)

    return [Route("POST", "/api/v1/lease/{lease}/extend", extend)]
