"""`ackwise lag`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from ackwise.cli.opening import DEFAULT_URL, URL, AsJSON
from ackwise.cli.sparking import Group, Html, Master, Queue, say_where, show_rows, sparked


def lag(
    queue: Queue = None,
    group: Group = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="A row per partition.")] = False,
    minutes: Annotated[
        int, typer.Option("--minutes", min=1, max=44_640, help="Estimate by the acks of so many minutes.")
    ] = 5,
    url: URL = DEFAULT_URL,
    master: Master = None,
    as_json: AsJSON = False,
    html: Html = None,
) -> None:
    """What groups have not finished, how old it is, and when it will be done."""
    with sparked("lag", url, master, queue) as spark:
        from ackwise.spark.jobs import lag as job
        from ackwise.spark.jobs.tables import collected

        rows = collected(job(spark, url, queue, group, partitions=partitions, minutes=minutes))
    from ackwise.spark.reports import write_lag_report
    from ackwise.spark.reports.columns import GROUPS, PARTITIONS

    if html is not None:
        write_lag_report(html, rows, datetime.now(UTC), queue=queue, group=group)
    show_rows(rows, PARTITIONS if partitions else GROUPS, as_json, "no group has read here yet")
    say_where(html)
