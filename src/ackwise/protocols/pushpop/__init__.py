"""PushPop's HTTP API: queues of items with priorities, and pops under a lock."""

from __future__ import annotations

from ackwise.broker import AsyncBroker
from ackwise.protocols.http_response import Route
from ackwise.protocols.pushpop import locks, pop, push, queue_status
from ackwise.protocols.pushpop.vocabulary import error_answer

PATHS = "queue"
"""First segment of PushPop's paths."""


def pushpop_routes(broker: AsyncBroker, *, default_priority: int = 0) -> list[Route]:
    return [
        *push.routes(broker, default_priority),
        *pop.routes(broker),
        *locks.routes(broker),
        *queue_status.routes(broker),
    ]


__all__ = ["PATHS", "error_answer", "pushpop_routes"]
