"""Every face that the server shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ackwise.broker import AsyncBroker
from ackwise.dialects.http import Route
from ackwise.dialects.mew.serving import MewFace
from ackwise.dialects.pushpop import pushpop_routes
from ackwise.dialects.pushpop.sinks import Sinks, registering
from ackwise.dialects.queen import queen_routes
from ackwise.server.home import home_routes
from ackwise.server.native import native_routes

if TYPE_CHECKING:
    from ackwise.server.serving import Settings


def all_routes(broker: AsyncBroker, settings: Settings, sinks: Sinks, mew: MewFace | None = None) -> list[Route]:
    return [
        *home_routes(),
        *queen_routes(broker, upstream=settings.queen_defaults == "upstream", start=settings.default_subscription),
        *pushpop_routes(broker, default_priority=settings.pushpop_default_priority),
        *registering.routes(sinks),
        *native_routes(broker),
        *(mew or MewFace(broker)).routes(),
    ]
