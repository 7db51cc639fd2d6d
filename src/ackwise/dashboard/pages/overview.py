"""Overview: depths, rates, health and duties of the whole store."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get
from ackwise.dashboard.series import SPANS, flow_chart
from ackwise.wire.store_url import without_password

DUTIES = {
    "expire": "End expired leases",
    "promote": "Make scheduled messages available",
    "max_wait": "Dead-letter messages that waited too long",
    "retain": "Remove old messages",
    "forget": "Remove old leases, keys and ledger minutes",
    "purge": "Remove deleted queues",
    "shrink": "Return free space",
    "graph": "Deliveries of the graph",
}
"""What each duty of the broker does."""


async def show(page: PageRequest) -> Response:
    catalogue, rates, (span, series, chart) = await asyncio.gather(page.catalogue(), page.rates(), flow_chart(page))
    traits = page.broker.store.traits
    return page.render(
        "overview.html.j2",
        catalogue=catalogue,
        rates=rates.totals,
        span=span,
        spans=SPANS,
        series=series,
        chart=chart,
        health=page.broker.pulse.health(),
        draining=page.broker.draining,
        duty_names=DUTIES,
        duties=page.broker.duties.runs(),
        store=without_password(traits.name),
        traits=traits,
    )


ROUTES = (get("/", show),)
