"""Consumers: owners of recent claims and of live leases."""

from __future__ import annotations

from starlette.responses import Response

from ackwise.core.errors import AckwiseError
from ackwise.core.queries import ListConsumers
from ackwise.core.rows import ConsumerRow, Page
from ackwise.core.validation import MICROS
from ackwise.dashboard import filters
from ackwise.dashboard.pages.names import group_names, queue_names
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get
from ackwise.wire.http_status import status_of

MOST_ROWS = 100
WINDOWS = {"1m": ("1 minute", 60), "10m": ("10 minutes", 600), "1h": ("1 hour", 3600)}
"""Times within which a claim makes a consumer recent."""


async def show(page: PageRequest) -> Response:
    queue, group = filters.text(page, "queue"), filters.group(page)
    window = page.query.get("window", "10m")
    window = window if window in WINDOWS else "10m"
    seconds = WINDOWS[window][1]
    problem, status = "", 200
    rows: list[ConsumerRow] = []
    try:
        after = filters.place(page, tuple[str, str, str])
        query = ListConsumers(queue=queue, group=group, recent=seconds * MICROS, after=after, limit=MOST_ROWS)
        rows = await page.cached(("consumers", queue, group, window, after), query)
    except AckwiseError as error:
        problem, status = error.message, status_of(error)
    return page.render(
        "consumers.html.j2", status, rows=rows, problem=problem, queue=queue or "",
        group=page.query.get("group", ""), window=window, windows=[(key, text) for key, (text, _) in WINDOWS.items()],
        minutes=seconds / 60, queues=await queue_names(page), groups=await group_names(page),
        next=filters.place_text(rows.next if isinstance(rows, Page) else None),
        filtered=bool(queue or group or page.query.get("after")),
    )  # fmt: skip


ROUTES = (get("/consumers", show),)
