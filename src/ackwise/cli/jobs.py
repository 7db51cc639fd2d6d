"""`ackwise archive`, `replay`, `metrics` and `lag`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from ackwise.cli import arguments
from ackwise.cli.arguments import DEFAULT_URL, URL, AnyGroup, AnyQueue, AsJSON, DryRun, Yes, check_group, opened, sure
from ackwise.cli.output import counted, show_rows
from ackwise.cli.rates import now_of
from ackwise.cli.spark_session import Engine, EngineName, Html, Master, check_master, print_report_path, spark_for
from ackwise.spark.reports.columns import ARCHIVED, GROUPS, PARTITIONS, REPLAYED, WINDOWS, WOULD_REPLAY

_WINDOWS_OPTIONAL = ("latency_p95", "redelivery_rate", "dead", "latency_p50", "success_rate", "latency_p99", "acked")
_LAG_OPTIONAL = ("ack_rate", "unread", "held", "drain_seconds")


def archive(
    path: Annotated[str, typer.Argument(help="Folder of the archive, or a URL such as hdfs://…")],
    queue: AnyQueue = None,
    prune: Annotated[bool, typer.Option("--prune", help="Then remove archived messages from the store.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: URL = DEFAULT_URL,
    engine: EngineName = Engine.LOCAL,
    master: Master = None,
    as_json: AsJSON = False,
) -> None:
    """Write messages that every group has finished to Parquet, by queue and day. A message is archived once."""
    check_master(engine, master)
    if dry_run:
        _show_archivable(url, queue, prune)
        return
    if prune:
        sure(f"remove archived messages from the store after writing them to {path}", yes)
    if engine is Engine.SPARK:
        with spark_for("archive", url, master, queue) as spark:
            from ackwise.spark.jobs import archive as job
            from ackwise.spark.jobs.tables import collected

            rows = collected(job(spark, url, path, queue, prune=prune))
    else:
        from ackwise.cli.local_archive import archive as run

        with opened(url) as connection:
            rows = run(connection.transport, path, queue, prune=prune)
    show_rows(rows, ARCHIVED, as_json, "the store has no queues", optional=("first_at", "last_at"))


def _show_archivable(url: str, queue: str | None, prune: bool) -> None:
    from ackwise.core.queries import ListLanes

    with opened(url) as connection:
        names = [info.name for info in connection.queues()] if queue is None else [queue]
        for name in names:
            lanes = connection.transport.ask(ListLanes(queue=name, settled=True))
            finished = sum((lane.settled or 0) - lane.start for lane in lanes)
            print(f"would archive {'and remove ' if prune else ''}up to {counted(finished, 'message')} of {name}")


def replay(
    path: Annotated[str, typer.Argument(help="Folder of the archive.")],
    queue: AnyQueue = None,
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
    dry_run: DryRun = False,
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
    show_rows(rows, WOULD_REPLAY if dry_run else REPLAYED, as_json, "no archived message matches")


def metrics(
    queue: AnyQueue = None,
    group: AnyGroup = None,
    window: Annotated[str, typer.Option("--window", help="Length of a window: 5m, 1h, 1d.")] = "1h",
    since: Annotated[str | None, typer.Option("--since", help="From: an ISO time, or 24h for 24 hours ago.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Until: an ISO time, or 24h for 24 hours ago.")] = None,
    url: URL = DEFAULT_URL,
    engine: EngineName = Engine.LOCAL,
    master: Master = None,
    as_json: AsJSON = False,
    html: Html = None,
) -> None:
    """Show settlements per queue, group and time window: rates, shares and latencies."""
    check_master(engine, master)
    now = datetime.now(UTC)
    step = arguments.duration(window, "--window")
    first, last = arguments.instant(since, "--since", now), arguments.instant(until, "--until", now)
    if engine is Engine.SPARK:
        with spark_for("metrics", url, master, queue) as spark:
            from ackwise.spark.jobs import metrics as job
            from ackwise.spark.jobs.tables import collected

            rows = collected(job(spark, url, queue, group, window=step, since=first, until=last))
    else:
        from ackwise.cli.local_jobs import metrics as run

        with opened(url) as connection:
            rows = run(connection.transport, queue, group, now_of(connection), window=step, since=first, until=last)
    if not rows and group is not None:
        with opened(url) as connection:
            check_group(connection, queue, group)
    if html is not None:
        from ackwise.spark.reports import write_metrics_report

        write_metrics_report(html, rows, now, queue=queue, group=group)
    show_rows(rows, WINDOWS, as_json, "no settlements in this time", optional=_WINDOWS_OPTIONAL)
    print_report_path(html)


def lag(
    queue: AnyQueue = None,
    group: AnyGroup = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="One row per partition.")] = False,
    minutes: Annotated[
        int, typer.Option("--minutes", min=1, max=44_640, help="Estimate from the acks of this many minutes.")
    ] = 5,
    url: URL = DEFAULT_URL,
    engine: EngineName = Engine.LOCAL,
    master: Master = None,
    as_json: AsJSON = False,
    html: Html = None,
) -> None:
    """Show the unfinished messages of each group, the age of the oldest, and an estimate of the time left."""
    check_master(engine, master)
    now = datetime.now(UTC)
    if engine is Engine.SPARK:
        with spark_for("lag", url, master, queue) as spark:
            from ackwise.spark.jobs import lag as job
            from ackwise.spark.jobs.tables import collected

            rows = collected(job(spark, url, queue, group, partitions=partitions, minutes=minutes))
    else:
        from ackwise.cli.local_jobs import lag as run

        with opened(url) as connection:
            rows = run(connection.transport, queue, group, now_of(connection), partitions=partitions, minutes=minutes)
    if not rows and group is not None:
        with opened(url) as connection:
            check_group(connection, queue, group)
    if html is not None:
        from ackwise.spark.reports import write_lag_report

        write_lag_report(html, rows, now, queue=queue, group=group)
    columns = PARTITIONS if partitions else GROUPS
    show_rows(rows, columns, as_json, "no group has read yet; a claim creates its group", optional=_LAG_OPTIONAL)
    print_report_path(html)
