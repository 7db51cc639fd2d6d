"""The native routes put together. Each answer says the server's time, each refusal all that is known about it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core.errors import AckwiseError
from ackwise.core.native import admin
from ackwise.dialects.http import Answer, Call, Handler, Route, answer, refusal
from ackwise.server.about import VERSION
from ackwise.server.native import claiming, lists, pushing, ranges, settling
from ackwise.server.native.reading import STATUS

NOW = b"x-ackwise-now"
_encode = msgspec.json.Encoder(enc_hook=str).encode


def native_routes(broker: AsyncBroker) -> list[Route]:
    routes = [
        Route("GET", "/v1", _hello),
        *pushing.routes(broker),
        *claiming.routes(broker),
        *settling.routes(broker),
        *ranges.routes(broker),
        *lists.routes(broker),
        *_admin_routes(broker),
    ]
    return [route._replace(handler=_stamped(route.handler, broker.now)) for route in routes]


def _stamped(handler: Handler, now: Callable[[], int]) -> Handler:
    async def handle(call: Call) -> Answer:
        try:
            reply = await handler(call)
        except AckwiseError as problem:
            reply = refused(problem)
        reply.headers = (*reply.headers, (NOW, b"%d" % now()))
        return reply

    return handle


def refused(problem: AckwiseError) -> Answer:
    """`{"error", "code"}`, and `details` where there are any."""
    reply = refusal(problem)
    reply.status = STATUS.get(problem.code, reply.status)
    if problem.details:
        reply.body = _encode({"error": problem.message, "code": problem.code, "details": problem.details})
    return reply


async def _hello(_: Call) -> Answer:
    """Who answers here; a client asks before anything else."""
    return answer({"server": "ackwise", "version": VERSION})


def _admin_routes(broker: AsyncBroker) -> list[Route]:
    async def order(call: Call) -> Answer:
        command = await call.read(admin.COMMANDS)
        return Answer(admin.encode(admin.answer(command, await broker.send(command))))

    return [Route("POST", "/v1/admin", order)]
