"""Resources of the native API: queues, groups, leases, messages and dead letters, with problem documents as errors."""

from __future__ import annotations

from ackwise.broker import AsyncBroker
from ackwise.protocols.http_response import Route
from ackwise.protocols.native import (
    resources_dead_letters,
    resources_groups,
    resources_leases,
    resources_messages,
    resources_queues,
)
from ackwise.protocols.native.resource_answers import as_resource


def routes(broker: AsyncBroker) -> list[Route]:
    parts = (resources_queues, resources_groups, resources_leases, resources_messages, resources_dead_letters)
    return [as_resource(route) for part in parts for route in part.routes(broker)]
