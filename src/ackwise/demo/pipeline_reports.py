"""Heartbeats of the demo's pipelines. No Spark runs here, and each heartbeat says so in its host."""

from __future__ import annotations

import time

from ackwise.core.commands import ReportPipeline
from ackwise.core.pipelines import PipelineReport, PipelineState
from ackwise.demo.shop import Dice

HOST = "example data (no Spark runs)"
EVERY = 5.0
RATE = 1.2
"""Rows per second of the running pipeline."""
_ERROR = "PipelineFailed: the column 'city' of the payload is missing; the schema is city string, cents long"


def heartbeat(queue: str, group: str, state: PipelineState, rows: int, *, lag: int, error: str = "") -> ReportPipeline:
    report = PipelineReport(
        state=state,
        rows=rows,
        acked=rows * 97 // 100,
        retried=rows * 2 // 100,
        dead=rows // 100,
        outputs=rows * 97 // 100,
        batches=rows // 40 + 1,
        lag=lag,
        last_error=error,
        host=HOST,
        application_id="local-demo",
    )
    return ReportPipeline(id=f"{queue}/{group}", queue=queue, group=group, report=report)


def earlier_reports() -> list[tuple[float, ReportPipeline]]:
    """Reports of the history, with their ages in seconds: one pipeline that failed, and one that went silent."""
    return [
        (3 * 3600.0, heartbeat("shop/orders", "by-city", "running", 9_000, lag=40)),
        (2 * 3600.0, heartbeat("shop/orders", "by-city", "failed", 18_240, lag=312, error=_ERROR)),
        (50 * 60.0, heartbeat("mail/outgoing", "digest", "running", 100, lag=2)),
        (38 * 60.0, heartbeat("mail/outgoing", "digest", "running", 1_310, lag=5)),
        (26 * 3600.0, heartbeat("audit/events", "to-lake", "running", 10, lag=900)),
        (25 * 3600.0, heartbeat("audit/events", "to-lake", "stopped", 64_000, lag=0)),
        (3600.0, heartbeat("shop/payments", "invoicing", "running", 0, lag=0)),
    ]


class RunningReports:
    """Heartbeats of the pipeline that runs."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self._began = time.time() - 3600.0

    def next(self) -> ReportPipeline:
        rows = round((time.time() - self._began) * RATE)
        return heartbeat("shop/payments", "invoicing", "running", rows, lag=self._dice.randrange(6))
