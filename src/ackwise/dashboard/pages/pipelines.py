"""Pipelines: the newest heartbeat of each pipeline that runs elsewhere, on Spark for example."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import Response

from ackwise.core.queries import ListPipelines
from ackwise.core.rows import PipelineRow
from ackwise.core.validation import MICROS
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get

ROWS = 50
SILENT_AFTER = 30 * MICROS
"""Microseconds without a heartbeat after which a running pipeline is silent. Drivers send one every five seconds."""


class ShownPipeline(NamedTuple):
    """A pipeline with the values that the page computes from its heartbeat."""

    row: PipelineRow
    state: str
    """`running`, `stopped`, `failed` or `silent`."""
    rate: float | None
    """Rows per second since the start. None for a pipeline that does not run."""
    link: str
    """URL of the engine's page, if a browser may follow it."""


async def show(page: PageRequest) -> Response:
    query = ListPipelines(
        queue=page.query.get("queue") or None,
        group=page.query.get("group") or None,
        after=page.query.get("after", ""),
        limit=ROWS,
    )
    rows = await page.cached(("pipelines", query.queue, query.group, query.after), query)
    wall = page.broker.wall()
    return page.render(
        "pipelines.html.j2",
        pipelines=[shown(row, wall) for row in rows],
        next=getattr(rows, "next", None),
        filtered=bool(query.queue or query.group),
    )


def shown(row: PipelineRow, wall: int) -> ShownPipeline:
    report = row.report
    silent = report.state == "running" and wall - row.seen_at > SILENT_AFTER
    seconds = max(1.0, (row.seen_at - row.started_at) / MICROS)
    runs = report.state == "running" and not silent
    link = report.ui_url if urlsplit(report.ui_url).scheme in ("http", "https") else ""
    return ShownPipeline(row, "silent" if silent else report.state, report.rows / seconds if runs else None, link)


ROUTES = (get("/pipelines", show),)
