"""`ackwise archive`, `replay`, `metrics` and `lag`: jobs on Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from ackwise.cli import arguments
from ackwise.cli.arguments import DEFAULT_URL, URL, AsJSON, Yes, sure
from ackwise.cli.spark_session import Group, Html, Master, Queue, print_report_path, show_rows, spark_for


def archive(
    path: Annotated[str, typer.Argument(help="Folder of the archive, or a URL such as hdfs://…")],
    queue: Queue = None,
    prune: Annotated[bool, typer.Option("--prune", help="Then remove archived messages from the store.")] = False,
    yes: Yes = False,
    url: URL = DEFAULT_URL,
    master: Master = None,
    as_json: AsJSON = False,
) -> None:
    """Write messages that every group has finished to Parquet, by queue and day. A message is archived once."""
    if prune:
        sure(f"Remove archived messages from {url} after writing them to {path}?", yes)
    with spark_for("archive", url, master, queue) as spark:
        from ackwise.spark.jobs import archive as job
        from ackwise.spark.jobs.tables import collected

        rows = collected(job(spark, url, path, queue, prune=prune))
    from ackwise.spark.reports.columns import ARCHIVED

    show_rows(rows, ARCHIVED, as_json, "the store has no queues")


def replay(
    path: Annotated[str, typer.Argument(help="Folder of the archive.")],
    queue: Queue = None,
    to_queue: Annotated[
        str | None, typer.Option("--to-queue", help="Push to this queue instead of the original one.")
    ] = None,
    where: Annotated[str | None, typer.Option("--where", help="Spark SQL over the archive's columns.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Pushed at or after: an ISO time, or 24h for 24 hours ago.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Pushed before: an ISO time, or 24h for 24 hours ago.")
    ] = None,
    copy: Annotated[
        str | None, typer.Option("--copy", metavar="NAME", help="Push another copy, under this name.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print how many.")] = False,
    url: URL = DEFAULT_URL,
    master: Master = None,
    as_json: AsJSON = False,
) -> None:
    """Push archived messages again. A second replay of the same messages pushes nothing."""
    now = datetime.now(UTC)
    first, last = arguments.instant(since, "--since", now), arguments.instant(until, "--until", now)
    with spark_for("replay", url, master) as spark:
        from ackwise.spark.jobs import replay as job
        from ackwise.spark.jobs.tables import collected

        result = job(
            spark,
            path,
            url,
            queue,
            to_queue=to_queue,
            where=where,
            since=first,
            until=last,
            copy=copy or False,
            dry_run=dry_run,
        )
        rows = collected(result)
    from ackwise.spark.reports.columns import REPLAYED, WOULD_REPLAY

    show_rows(rows, WOULD_REPLAY if dry_run else REPLAYED, as_json, "no archived message matches")


def metrics(
    queue: Queue = None,
    group: Group = None,
    window: Annotated[str, typer.Option("--window", help="Length of a window: 5m, 1h, 1d.")] = "1h",
    since: Annotated[str | None, typer.Option("--since", help="From: an ISO time, or 24h for 24 hours ago.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Until: an ISO time, or 24h for 24 hours ago.")] = None,
    url: URL = DEFAULT_URL,
    master: Master = None,
    as_json: AsJSON = False,
    html: Html = None,
) -> None:
    """Show settlements per queue, group and time window: rates, shares and latencies."""
    now = datetime.now(UTC)
    step = arguments.duration(window, "--window")
    first, last = arguments.instant(since, "--since", now), arguments.instant(until, "--until", now)
    with spark_for("metrics", url, master, queue) as spark:
        from ackwise.spark.jobs import metrics as job
        from ackwise.spark.jobs.tables import collected

        rows = collected(job(spark, url, queue, group, window=step, since=first, until=last))
    from ackwise.spark.reports import write_metrics_report
    from ackwise.spark.reports.columns import WINDOWS

    if html is not None:
        write_metrics_report(html, rows, now, queue=queue, group=group)
    show_rows(rows, WINDOWS, as_json, "no settlements in this time")
    print_report_path(html)


def lag(
    queue: Queue = None,
    group: Group = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="One row per partition.")] = False,
    minutes: Annotated[
        int, typer.Option("--minutes", min=1, max=44_640, help="Estimate from the acks of this many minutes.")
    ] = 5,
    url: URL = DEFAULT_URL,
    master: Master = None,
    as_json: AsJSON = False,
    html: Html = None,
) -> None:
    """Show the unfinished messages of each group, the age of the oldest, and an estimate of the time left."""
    with spark_for("lag", url, master, queue) as spark:
        from ackwise.spark.jobs import lag as job
        from ackwise.spark.jobs.tables import collected

        rows = collected(job(spark, url, queue, group, partitions=partitions, minutes=minutes))
    from ackwise.spark.reports import write_lag_report
    from ackwise.spark.reports.columns import GROUPS, PARTITIONS

    if html is not None:
        write_lag_report(html, rows, datetime.now(UTC), queue=queue, group=group)
    show_rows(rows, PARTITIONS if partitions else GROUPS, as_json, "no group has read yet")
    print_report_path(html)
