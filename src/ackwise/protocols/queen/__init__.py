"""Queen MQ's HTTP API: paths, fields and error texts that Queen clients know."""

from __future__ import annotations

from typing import Literal

from ackwise.broker import AsyncBroker
from ackwise.protocols.http_response import Route
from ackwise.protocols.queen import (
    ack,
    configure,
    dead_letters,
    groups,
    lease,
    messages,
    pop,
    push,
    resources,
    route_docs,
    transaction,
)
from ackwise.protocols.queen.vocabulary import QueenContext
from ackwise.protocols.route_docs import documented

_PARTS = (push, pop, ack, lease, transaction, configure, resources, dead_letters, groups, messages)


def queen_routes(broker: AsyncBroker, *, upstream: bool, start: Literal["all", "new"]) -> list[Route]:
    context = QueenContext(upstream=upstream, start=start)
    routes = [route for part in _PARTS for route in part.routes(broker, context)]
    return documented(routes, route_docs.DOCS)


__all__ = ["queen_routes"]
