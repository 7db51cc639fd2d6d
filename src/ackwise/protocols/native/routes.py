"""All native routes. Every answer has the server's time in a header, every error answer its details."""

from __future__ import annotations

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core.errors import AckwiseError
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Handler, Route, answer
from ackwise.protocols.http_response import error_answer as plain_error_answer
from ackwise.protocols.native import claim, lists, push, read, settle
from ackwise.protocols.native.request_arguments import STATUS
from ackwise.protocols.product_version import VERSION
from ackwise.wire import admin

NOW = b"x-ackwise-now"
"""The wall clock. All instants of an answer are instants of this clock."""
CLOCK = b"x-ackwise-clock"
"""The anchored clock. A client measures leases with it, because a step of the wall clock does not change it."""
_encode = msgspec.json.Encoder(enc_hook=str).encode


def native_routes(broker: AsyncBroker) -> list[Route]:
    routes = [
        Route("GET", "/v1", _version),
        *push.routes(broker),
        *claim.routes(broker),
        *settle.routes(broker),
        *read.routes(broker),
        *lists.routes(broker),
        *_admin_routes(broker),
    ]
    return [route._replace(handler=_with_time(route.handler, broker)) for route in routes]


def _with_time(handler: Handler, broker: AsyncBroker) -> Handler:
    """Wraps a handler: adds the server's time to its answers and turns errors into answers."""

    async def handle(call: Call) -> Answer:
        try:
            reply = await handler(call)
        except AckwiseError as problem:
            reply = error_answer(problem)
        now = broker.now()
        reply.headers = (*reply.headers, (NOW, b"%d" % broker.wall_of(now)), (CLOCK, b"%d" % now))
        return reply

    return handle


def error_answer(problem: AckwiseError) -> Answer:
    """`{"error", "code"}`, with `details` if the error has any."""
    reply = plain_error_answer(problem)
    reply.status = STATUS.get(problem.code, reply.status)
    if problem.details:
        reply.body = _encode({"error": problem.message, "code": problem.code, "details": problem.details})
    return reply


async def _version(_: Call) -> Answer:
    """Name and version of the server. A client requests them first."""
    return answer({"server": "ackwise", "version": VERSION})


def _admin_routes(broker: AsyncBroker) -> list[Route]:
    async def send_command(call: Call) -> Answer:
        command = await call.read(admin.COMMANDS)
        return Answer(admin.encode(await broker.send(command)))

    return [Route("POST", "/v1/admin", send_command)]
