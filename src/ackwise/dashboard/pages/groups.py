"""Groups: lag and state of each consumer group, and its progress in each partition."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from ackwise.core.errors import AckwiseError, UnknownGroup
from ackwise.core.queries import ListGroups, ListPlaces
from ackwise.core.rows import GroupStats, Page
from ackwise.dashboard import filters
from ackwise.dashboard.group_states import STATES, group_state
from ackwise.dashboard.pages.names import group_names, queue_names
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get
from ackwise.dashboard.snapshots import INTERVAL
from ackwise.wire.http_status import status_of

MOST_ROWS = 50
MOST_SORTED = 500
"""Groups that the page reads to sort them by lag."""
SLOW_INTERVAL = 10.0
SORTS = (("", "Name"), ("lag", "Lag"))


async def show_list(page: PageRequest) -> Response:
    queue, group = filters.text(page, "queue"), filters.group(page)
    problem, status, by_lag = "", 200, page.query.get("sort") == "lag"
    rows: list[GroupStats] = []
    sorted_of = cut_from = 0
    try:
        after = filters.place(page, tuple[str, str])
        limit = MOST_SORTED if by_lag else MOST_ROWS
        query = ListGroups(queue=queue, group=group, after=None if by_lag else after, limit=limit)
        rows = await page.cached(("groups", queue, group, query.after, limit), query)
    except AckwiseError as error:
        problem, status = error.message, status_of(error)
    if by_lag:
        sorted_of = len(rows) if isinstance(rows, Page) and rows.next else 0
        read = len(rows)
        rows = sorted(rows, key=lambda row: (-row.lag, row.queue, row.group))[:MOST_ROWS]
        cut_from = read if read > len(rows) else 0
    return page.render(
        "groups.html.j2", status, rows=rows, next=_next(rows), problem=problem, queue=queue or "",
        group=page.query.get("group", ""), filtered=bool(queue or group or page.query.get("after")),
        sort="lag" if by_lag else "", sorts=SORTS, sorted_of=sorted_of, cut_from=cut_from, states=STATES,
        state_of=group_state,        queues=await queue_names(page), groups=await group_names(page),
    )  # fmt: skip


def _next(rows: list[GroupStats]) -> str | None:
    return filters.place_text(rows.next) if isinstance(rows, Page) else None


async def show(page: PageRequest) -> Response:
    queue, group = page.params["queue"], page.params["group"]
    after, behind = page.query.get("after") or None, bool(page.query.get("behind"))
    query = ListPlaces(
        queue=queue, group=group, unfinished_since=page.broker.wall() if behind else None,
        after=None if after is None else (queue, group, after), limit=MOST_ROWS,
    )  # fmt: skip
    # Partitions that are behind are few among many, so the search for them is cached for longer.
    interval = SLOW_INTERVAL if behind else INTERVAL
    rows, places = await asyncio.gather(
        page.cached(("groups", queue, group, None, 1), ListGroups(queue=queue, group=group, limit=1)),
        page.cached(("places", queue, group, after, behind), query, interval),
    )
    if not rows:
        raise UnknownGroup(f"queue {queue!r} has no group {filters.group_name(group)!r}", queue=queue, group=group)
    return page.render(
        "group.html.j2", queue=queue, group=group, stats=rows[0], places=places,
        next=places[-1].partition if isinstance(places, Page) and places.next else None, behind=behind, states=STATES,
        state_of=group_state,
    )  # fmt: skip


ROUTES = (get("/groups", show_list), get("/groups/{queue}/{group}", show))
