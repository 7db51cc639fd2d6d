"""Names: options that complete the name of a queue or a group in a field."""

from __future__ import annotations

from starlette.responses import Response

from ackwise.core import validation
from ackwise.core.queries import ListGroupNames, ListQueues
from ackwise.dashboard.filters import group_name
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get

MOST_NAMES = 50
"""Options of a field. The user types more of the name to see others."""


async def queue_names(page: PageRequest, prefix: str = "") -> list[str]:
    """Queues whose names begin with `prefix` and continue, up to `MOST_NAMES`."""
    rows = await page.cached(("queue_names", prefix), ListQueues(after=prefix, limit=MOST_NAMES))
    return [row.name for row in rows if row.name.startswith(prefix)]


async def group_names(page: PageRequest, prefix: str = "") -> list[str]:
    """Groups whose names begin with `prefix` and continue, up to `MOST_NAMES`."""
    rows = await page.cached(("group_names", prefix), ListGroupNames(after=prefix, limit=MOST_NAMES))
    return [group_name(name) for name in rows if name.startswith(prefix)]


async def queues(page: PageRequest) -> Response:
    return await _options(page, await queue_names(page, _prefix(page, "queue")))


async def groups(page: PageRequest) -> Response:
    return await _options(page, await group_names(page, _prefix(page, "group")))


def _prefix(page: PageRequest, field: str) -> str:
    prefix = page.query.get(field, "")
    return validation.name(prefix, field) if prefix else ""


async def _options(page: PageRequest, names: list[str]) -> Response:
    return page.render("names.html.j2", names=names)


ROUTES = (get("/names/queues", queues), get("/names/groups", groups))
