"""Reports of pipelines in other processes. The store keeps the newest report of each pipeline for a week."""

from __future__ import annotations

import msgspec

from ackwise.core import queries as q
from ackwise.core.answers import Counted
from ackwise.core.commands import ReportPipeline
from ackwise.core.errors import Conflict
from ackwise.core.pipelines import PipelineReport
from ackwise.core.rows import Page, PipelineRow
from ackwise.core.validation import MICROS
from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.engine.turn import Turn

MOST_PIPELINES = 1000
KEPT_FOR = 7 * 24 * 3600 * MICROS
_report = msgspec.json.Decoder(PipelineReport).decode


class TooManyPipelines(Conflict):
    """The store has too many pipelines; report each run with one id, or wait until older ones are forgotten."""

    code = "too_many_pipelines"


def report(turn: Turn, command: ReportPipeline) -> Counted:
    session = turn.session
    known = session.row("pipeline_get", {"id": command.id})
    if known is None:
        row = session.row("pipeline_count")
        if row is not None and row[0] >= MOST_PIPELINES:
            raise TooManyPipelines(f"the store has {row[0]} pipelines, which is the limit; report each run with one id")
    session.run(
        "pipeline_put",
        {
            "id": command.id,
            "queue": command.queue,
            "grp": command.group,
            "started_at": turn.wall if known is None or _restarts(known[1], command.report) else known[0],
            "seen_at": turn.wall,
            "report": msgspec.json.encode(command.report),
        },
    )
    return Counted(1)


def _restarts(before: bytes, now: PipelineReport) -> bool:
    """Whether the report comes from another run: the pipeline had ended, or its driver was killed."""
    old = _report(before)
    ended = old.state != "running" or now.rows < old.rows or now.application_id != old.application_id
    return now.state == "running" and ended


def forget(turn: Turn, limit: int) -> int:
    """Remove pipelines whose newest report is older than `KEPT_FOR`."""
    return turn.session.run("pipelines_forget", {"before": turn.wall - KEPT_FOR, "limit": limit})


@answers(q.ListPipelines)
def list_pipelines(snapshot: Snapshot, query: q.ListPipelines) -> Page[PipelineRow]:
    where = {"queue": query.queue, "grp": query.group, "after": query.after, "limit": query.limit}
    rows = snapshot.session.rows("pipelines_page", where)
    page = Page(
        PipelineRow(id=row[0], queue=row[1], group=row[2], started_at=row[3], seen_at=row[4], report=_report(row[5]))
        for row in rows
    )
    if len(page) >= query.limit > 0:
        page.next = page[-1].id
    return page
