"""`ackwise replay`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from ackwise.cli import times
from ackwise.cli.opening import DEFAULT_URL, URL, AsJSON
from ackwise.cli.sparking import Master, Queue, show_rows, sparked


def replay(
    path: Annotated[str, typer.Argument(help="Folder of the archive.")],
    queue: Queue = None,
    to_queue: Annotated[str | None, typer.Option("--to-queue", help="Push there instead.")] = None,
    where: Annotated[str | None, typer.Option("--where", help="Spark SQL over the archive's columns.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Made at or after: a time, or 24h for as long ago.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Made before that.")] = None,
    copy: Annotated[
        str | None, typer.Option("--copy", metavar="NAME", help="Push once more, under the name of this copy.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many.")] = False,
    url: URL = DEFAULT_URL,
    master: Master = None,
    as_json: AsJSON = False,
) -> None:
    """Push a slice of an archive again. Doing it twice pushes once."""
    now = datetime.now(UTC)
    first, last = times.instant(since, "--since", now), times.instant(until, "--until", now)
    with sparked("replay", url, master) as spark:
        from ackwise.spark.jobs import replay as job
        from ackwise.spark.jobs.tables import collected

        found = job(
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
        rows = collected(found)
    from ackwise.spark.reports.columns import REPLAYED, WOULD_REPLAY

    show_rows(rows, WOULD_REPLAY if dry_run else REPLAYED, as_json, "the archive has nothing like that")
