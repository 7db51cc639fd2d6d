"""PushPop's HTTP API: items with priorities, and a pop that holds them until they are acknowledged."""

from __future__ import annotations

from ackwise.broker import AsyncBroker
from ackwise.dialects.http import Route
from ackwise.dialects.pushpop import locking, looking, popping, pushing
from ackwise.dialects.pushpop.refusing import refused

PATHS = "queue"
"""How paths of this face begin."""


def pushpop_routes(broker: AsyncBroker, *, default_priority: int = 0) -> list[Route]:
    return [
        *pushing.routes(broker, default_priority),
        *popping.routes(broker),
        *locking.routes(broker),
        *looking.routes(broker),
    ]


__all__ = ["PATHS", "pushpop_routes", "refused"]
