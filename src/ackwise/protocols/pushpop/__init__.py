"""PushPop's HTTP API: queues of items with priorities, and pops under a lock."""

from __future__ import annotations

from ackwise.broker import AsyncBroker
from ackwise.protocols.http_response import Route
from ackwise.protocols.pushpop import locks, pop, push, queue_status, route_docs
from ackwise.protocols.pushpop.vocabulary import error_answer
from ackwise.protocols.route_docs import documented

PATHS = "queue"
"""First segment of PushPop's paths."""


def pushpop_routes(broker: AsyncBroker, *, default_priority: int = 0) -> list[Route]:
    routes = [
        *push.routes(broker, default_priority),
        *pop.routes(broker),
        *locks.routes(broker),
        *queue_status.routes(broker),
    ]
    return documented(routes, route_docs.DOCS)


__all__ = ["PATHS", "error_answer", "pushpop_routes"]
