"""Queen MQ's HTTP API: its paths, words and error texts over our engine."""

from __future__ import annotations

from typing import Literal

from ackwise.broker import AsyncBroker
from ackwise.dialects.http import Route
from ackwise.dialects.queen import (
    acking,
    configuring,
    dead_letters,
    groups,
    leasing,
    messages,
    popping,
    pushing,
    resources,
    transactions,
)
from ackwise.dialects.queen.words import Words

_PARTS = (pushing, popping, acking, leasing, transactions, configuring, resources, dead_letters, groups, messages)


def queen_routes(broker: AsyncBroker, *, upstream: bool, start: Literal["all", "new"]) -> list[Route]:
    words = Words(upstream=upstream, start=start)
    return [route for part in _PARTS for route in part.routes(broker, words)]


__all__ = ["queen_routes"]
