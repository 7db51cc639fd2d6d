"""All native routes. Every answer has the server's time in a header, every error answer its details."""

from __future__ import annotations

from ackwise.broker import AsyncBroker
from ackwise.core.errors import AckwiseError
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Handler, Route, answer
from ackwise.protocols.native import claim, lists, push, read, resources, route_docs, settle
from ackwise.protocols.problem_documents import native_error_answer
from ackwise.protocols.product_version import VERSION
from ackwise.protocols.route_docs import documented
from ackwise.wire import admin

NOW = b"x-ackwise-now"
"""The wall clock. All instants of an answer are instants of this clock."""
CLOCK = b"x-ackwise-clock"
"""The anchored clock. A client measures leases with it, because a step of the wall clock does not change it."""


def native_routes(broker: AsyncBroker) -> list[Route]:
    routes = [
        Route("GET", "/v1", _version),
        *push.routes(broker),
        *claim.routes(broker),
        *settle.routes(broker),
        *read.routes(broker),
        *lists.routes(broker),
        *resources.routes(broker),
        *_admin_routes(broker),
    ]
    with_docs = documented(routes, route_docs.DOCS)
    return [route._replace(handler=_with_time(route.handler, broker)) for route in with_docs]


def _with_time(handler: Handler, broker: AsyncBroker) -> Handler:
    """Wraps a handler: adds the server's time to its answers and turns errors into answers."""

    async def handle(call: Call) -> Answer:
        try:
            reply = await handler(call)
        except AckwiseError as problem:
            reply = native_error_answer(problem)
        now = broker.now()
        reply.headers = (*reply.headers, (NOW, b"%d" % broker.wall_of(now)), (CLOCK, b"%d" % now))
        return reply

    return handle


async def _version(_: Call) -> Answer:
    """Name and version of the server. A client requests them first."""
    return answer({"server": "ackwise", "version": VERSION})


def _admin_routes(broker: AsyncBroker) -> list[Route]:
    async def send_command(call: Call) -> Answer:
        command = await call.read(admin.COMMANDS)
        return Answer(admin.encode(await broker.send(command)))

    return [Route("POST", "/v1/admin", send_command)]
