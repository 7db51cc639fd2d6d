"""`ackwise metrics`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from ackwise.cli import times
from ackwise.cli.opening import DEFAULT_URL, URL, AsJSON
from ackwise.cli.sparking import Group, Html, Master, Queue, say_where, show_rows, sparked


def metrics(
    queue: Queue = None,
    group: Group = None,
    window: Annotated[str, typer.Option("--window", help="How long a window is: 5m, 1h, 1d.")] = "1h",
    since: Annotated[str | None, typer.Option("--since", help="From when on: a time, or 24h for as long ago.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Until before when.")] = None,
    url: URL = DEFAULT_URL,
    master: Master = None,
    as_json: AsJSON = False,
    html: Html = None,
) -> None:
    """What was settled per queue, group and window: rates, shares and latencies."""
    now = datetime.now(UTC)
    step = times.duration(window, "--window")
    first, last = times.instant(since, "--since", now), times.instant(until, "--until", now)
    with sparked("metrics", url, master, queue) as spark:
        from ackwise.spark.jobs import metrics as job
        from ackwise.spark.jobs.tables import collected

        rows = collected(job(spark, url, queue, group, window=step, since=first, until=last))
    from ackwise.spark.reports import write_metrics_report
    from ackwise.spark.reports.columns import WINDOWS

    if html is not None:
        write_metrics_report(html, rows, now, queue=queue, group=group)
    show_rows(rows, WINDOWS, as_json, "nothing was settled in this time")
    say_where(html)
