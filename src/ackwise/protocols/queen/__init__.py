"""Queen MQ's HTTP API: paths, fields and error texts that Queen clients know."""

from __future__ import annotations

from typing import Literal

from ackwise.broker import AsyncBroker
from ackwise.protocols.http_response import Route
from ackwise.protocols.queen import (
    ack,
    analytics,
    configure,
    dead_letters,
    groups,
    lease,
    maintenance,
    messages,
    pop,
    push,
    resources,
    route_docs,
    status,
    traces,
    transaction,
)
from ackwise.protocols.queen.maintenance_watch import MaintenanceWatch
from ackwise.protocols.queen.vocabulary import QueenContext
from ackwise.protocols.route_docs import documented

_PARTS = (
    *(push, pop, ack, lease, transaction, configure, resources, dead_letters, groups, messages),
    *(traces, status, analytics, maintenance),
)


def queen_routes(
    broker: AsyncBroker,
    *,
    upstream: bool,
    start: Literal["all", "new"],
    maintenance: MaintenanceWatch | None = None,
) -> list[Route]:
    context = QueenContext(maintenance or MaintenanceWatch(broker), upstream=upstream, start=start)
    routes = [route for part in _PARTS for route in part.routes(broker, context)]
    return documented(routes, route_docs.DOCS)


__all__ = ["MaintenanceWatch", "queen_routes"]
