"""`ackwise archive`."""

from __future__ import annotations

from typing import Annotated

import typer

from ackwise.cli.opening import DEFAULT_URL, URL, AsJSON, Yes, sure
from ackwise.cli.sparking import Master, Queue, show_rows, sparked


def archive(
    path: Annotated[str, typer.Argument(help="Folder of the archive; hdfs:// and the like as well.")],
    queue: Queue = None,
    prune: Annotated[bool, typer.Option("--prune", help="Then remove what is archived from the store.")] = False,
    yes: Yes = False,
    url: URL = DEFAULT_URL,
    master: Master = None,
    as_json: AsJSON = False,
) -> None:
    """Messages that every group has finished, to Parquet by queue and day; each once, however often it runs."""
    if prune:
        sure(f"Remove from {url} what is archived in {path}?", yes)
    with sparked("archive", url, master, queue) as spark:
        from ackwise.spark.jobs import archive as job
        from ackwise.spark.jobs.tables import collected

        rows = collected(job(spark, url, path, queue, prune=prune))
    from ackwise.spark.reports.columns import ARCHIVED

    show_rows(rows, ARCHIVED, as_json, "there is no queue")
