"""Settings: the active values and their origins."""

from __future__ import annotations

from starlette.responses import Response

from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get
from ackwise.wire.store_url import without_password


async def show(page: PageRequest) -> Response:
    traits = page.broker.store.traits
    return page.render(
        "settings.html.j2",
        store=without_password(traits.name),
        schema=traits.schema,
        local=traits.local,
        instance=traits.instance,
        settings=page.dashboard.settings,
    )


ROUTES = (get("/settings", show),)
