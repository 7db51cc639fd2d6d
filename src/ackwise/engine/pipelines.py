"""Heartbeats of pipelines: the newest report of each, as its driver sent it."""

from __future__ import annotations

import msgspec

from ackwise.core.answers import Counted
from ackwise.core.commands import ReportPipeline
from ackwise.core.pipelines import KEPT_FOR, MOST_PIPELINES, PipelineReport
from ackwise.core.queries import ListPipelines
from ackwise.core.rows import Page, PipelineRow
from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.engine.turn import Turn

_LAST = (1 << 62, "")


def report(turn: Turn, command: ReportPipeline) -> Counted:
    """Keep the report in place of the pipeline's last one. The queue may be gone: the pipeline still runs."""
    turn.session.run(
        "pipeline_put",
        {
            "id": command.id,
            "queue": command.queue,
            "grp": command.group,
            "started_at": command.report.started_at,
            "seen_at": turn.wall,
            "report": msgspec.json.encode(command.report),
        },
    )
    return Counted(1)


def forget(turn: Turn, limit: int) -> int:
    """Remove pipelines that have been silent for long, and the oldest surplus."""
    removed = turn.session.run("pipelines_old", {"before": turn.wall - KEPT_FOR, "limit": limit})
    return removed + turn.session.run("pipelines_surplus", {"most": MOST_PIPELINES, "limit": limit})


@answers(ListPipelines)
def list_pipelines(snapshot: Snapshot, query: ListPipelines) -> Page[PipelineRow]:
    seen_at, last_id = _LAST if query.after is None else query.after
    where = {"queue": query.queue, "seen_at": seen_at, "id": last_id, "limit": query.limit}
    page = Page(
        PipelineRow(
            id=row[0],
            queue=row[1],
            group=row[2],
            seen_at=row[3],
            report=msgspec.json.decode(row[4], type=PipelineReport),
        )
        for row in snapshot.session.rows("pipelines_page", where)
    )
    if len(page) >= query.limit > 0:
        page.next = (page[-1].seen_at, page[-1].id)
    return page
