"""Overview: what waits, what moves and what is wrong, for the whole store."""

from __future__ import annotations

from starlette.responses import Response

from ackwise.core.queries import StoreSize
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get


async def show(page: PageRequest) -> Response:
    size = await page.cached(("store_size",), StoreSize())
    return page.render("overview.html.j2", size=size, traits=page.broker.store.traits)


ROUTES = (get("/", show),)
