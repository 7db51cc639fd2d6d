"""All native routes. Every answer has the server's time in a header. Every error answer has its details."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ackwise.broker import AsyncBroker
from ackwise.core.answers import Counted, Redriven
from ackwise.core.commands import AdvanceGroup, PruneQueue, PurgeDead, Redrive, Replay, SetHook
from ackwise.core.errors import AckwiseError
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Handler, Route, answer
from ackwise.protocols.native import claim, hooks, lists, push, read, resources, route_docs, settle
from ackwise.protocols.problem_documents import native_error_answer
from ackwise.protocols.product_version import VERSION
from ackwise.protocols.route_docs import documented
from ackwise.wire import admin

NOW = b"x-ackwise-now"
"""The wall clock. All instants of an answer are instants of this clock."""
CLOCK = b"x-ackwise-clock"
"""The anchored clock. A client measures leases with it, because a step of the wall clock does not change it."""

COMMAND = "ackwise.command"
"""Scope key of an admin command's tag. `server.app` reads it for the event of the request."""
_COUNTS_MESSAGES = (PruneQueue, PurgeDead, AdvanceGroup, Redrive, Replay)
"""Admin commands whose answers count messages. Other answers count groups, lanes or hooks."""


def native_routes(
    broker: AsyncBroker, post_hosts: Collection[str] = (), on_hook: Callable[[], None] = lambda: None
) -> list[Route]:
    """All routes. `post_hosts` are the hosts besides this machine that webhooks may post to.

    `on_hook` is called after a hook changed.
    """
    leases = claim.LeaseQueues()
    routes = [
        Route("GET", "/v1", _version),
        *push.routes(broker),
        *claim.routes(broker, leases),
        *settle.routes(broker, leases),
        *read.routes(broker),
        *lists.routes(broker),
        *resources.routes(broker),
        *hooks.routes(broker, post_hosts, on_hook),
        *_admin_routes(broker, post_hosts, on_hook),
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


def _admin_routes(broker: AsyncBroker, post_hosts: Collection[str], on_hook: Callable[[], None]) -> list[Route]:
    async def send_command(call: Call) -> Answer:
        command = await call.read(admin.COMMANDS)
        call.scope[COMMAND] = command.__struct_config__.tag
        call.queue = getattr(command, "queue", None) or ""
        hooks.check_target(command, post_hosts)
        reply = await broker.send(command)
        if isinstance(reply, Counted | Redriven) and isinstance(command, _COUNTS_MESSAGES):
            call.messages = reply.count
            call.queue = call.queue or reply.queue
        if isinstance(command, SetHook):
            on_hook()
        return Answer(admin.encode(reply))

    return [Route("POST", "/v1/admin", send_command)]
