"""A Spark session for one command. Nothing of Spark is imported before one is asked for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ackwise.cli.opening import opened
from ackwise.cli.showing import show_json, wide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ackwise.spark.reports.cells import Column

Master = Annotated[
    str | None,
    typer.Option("--master", help="Where Spark runs, for example spark://host:7077.", show_default="local[*]"),
]
Html = Annotated[Path | None, typer.Option("--html", metavar="PATH", help="Write a page with charts as well.")]
Queue = Annotated[str | None, typer.Option("--queue", help="Only this queue's.")]
Group = Annotated[str | None, typer.Option("--group", help="Only this group's.")]


@contextlib.contextmanager
def sparked(label: str, url: str, master: str | None, queue: str | None = None) -> Iterator[SparkSession]:
    """A session, stopped afterwards unless it ran before; what goes wrong in it is one line.

    A store, server or queue that is not there is said at once: Spark takes its time to start.
    """
    with opened(url) as connection:
        if queue is not None:
            connection.queue(queue)
    from ackwise.spark import session

    ran_before = _running()
    spark = session(f"ackwise {label}", master=master)
    from ackwise.spark.progress import batch_progress
    from ackwise.spark.refusals import told

    try:
        with told(), batch_progress(spark, label):
            yield spark
    finally:
        if not ran_before:
            spark.stop()


def _running() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def show_rows(rows: Sequence[dict[str, Any]], columns: Sequence[Column], as_json: bool, nothing: str) -> None:
    """All of each row as JSON, or these columns as a table, or why there is none."""
    if as_json:
        show_json(rows)
        return
    if not rows:
        print(nothing)
        return
    from ackwise.spark.reports.cells import cell

    table = Table()
    for column in columns:
        numeric = column.kind in ("number", "share", "duration")
        table.add_column(column.label, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(row[column.key], column.kind) for column in columns))
    wide().print(table, markup=False)


def say_where(html: Path | None) -> None:
    if html is not None:
        Console(stderr=True).print(f"report: {html}", highlight=False, soft_wrap=True, markup=False)
