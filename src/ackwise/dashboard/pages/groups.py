"""Groups: where each consumer group of a queue stands, and its progress in each partition."""

from __future__ import annotations

from starlette.responses import Response

from ackwise.core.errors import AckwiseError
from ackwise.core.queries import GetGroup, ListGroups, ListPlaces
from ackwise.core.rows import GroupStats, Page
from ackwise.dashboard import filters
from ackwise.dashboard.group_states import STATES, group_state
from ackwise.dashboard.pages.names import group_names, queue_names
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get
from ackwise.wire.http_status import status_of

MOST_ROWS = 50


async def show_list(page: PageRequest) -> Response:
    queue, group = filters.text(page, "queue"), filters.group(page)
    problem, status = "", 200
    rows: list[GroupStats] = []
    try:
        after = filters.place(page, tuple[str, str])
        query = ListGroups(queue=queue, group=group, after=after, limit=MOST_ROWS)
        rows = await page.cached(("groups", queue, group, after), query)
    except AckwiseError as error:
        problem, status = error.message, status_of(error)
    return page.render(
        "groups.html.j2", status, rows=rows, next=_next(rows), problem=problem, queue=queue or "",
        group=page.query.get("group", ""), filtered=bool(queue or group or page.query.get("after")),
        states=STATES, state_of=group_state, queues=await queue_names(page), groups=await group_names(page),
    )  # fmt: skip


def _next(rows: list[GroupStats]) -> str | None:
    return filters.place_text(rows.next) if isinstance(rows, Page) else None


async def show(page: PageRequest) -> Response:
    queue, group = page.params["queue"], page.params["group"]
    after, behind = page.query.get("after") or None, bool(page.query.get("behind"))
    details = await page.cached(("group", queue, group), GetGroup(queue=queue, group=group))
    stats = await page.cached(("groups", queue, group, None), ListGroups(queue=queue, group=group, limit=1))
    now = page.broker.wall()
    places = await page.cached(
        ("places", queue, group, after, behind),
        ListPlaces(
            queue=queue, group=group, unfinished_since=now if behind else None,
            after=None if after is None else (queue, group, after), limit=MOST_ROWS,
        ),
    )  # fmt: skip
    return page.render(
        "group.html.j2", queue=queue, group=group, details=details, stats=stats[0] if stats else details.stats,
        places=places, next=places[-1].partition if isinstance(places, Page) and places.next else None,
        behind=behind, states=STATES, state_of=group_state,
    )  # fmt: skip


ROUTES = (get("/groups", show_list), get("/groups/{queue}/{group}", show))
