"""Spark session of a command, and the options and output of Spark commands."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ackwise.cli.arguments import opened
from ackwise.cli.output import show_json, wide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ackwise.spark.reports.columns import Column

Master = Annotated[
    str | None,
    typer.Option("--master", help="Spark master, such as spark://host:7077.", show_default="local[*]"),
]
Html = Annotated[Path | None, typer.Option("--html", metavar="PATH", help="Also write an HTML page with charts.")]
Queue = Annotated[str | None, typer.Option("--queue", help="Only this queue.")]
Group = Annotated[str | None, typer.Option("--group", help="Only this group.")]


@contextlib.contextmanager
def spark_for(label: str, url: str, master: str | None, queue: str | None = None) -> Iterator[SparkSession]:
    """Spark session for one command. An error of Spark becomes one line.

    Checks that the store, server and queue exist before it starts Spark, which takes seconds. At the end it stops the
    session, unless Spark ran before the command.
    """
    with opened(url) as connection:
        if queue is not None:
            connection.queue(queue)
    from ackwise.spark import session

    ran_before = _running()
    spark = session(f"ackwise {label}", master=master)
    from ackwise.spark.errors import translate_spark_errors
    from ackwise.spark.progress import batch_progress

    try:
        with translate_spark_errors(), batch_progress(spark, label):
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
    """Print all fields of each row as JSON, or `columns` as a table, or `nothing` if there are no rows."""
    if as_json:
        show_json(rows)
        return
    if not rows:
        print(nothing)
        return
    from ackwise.spark.reports.columns import cell

    table = Table()
    for column in columns:
        numeric = column.kind in ("number", "share", "duration")
        table.add_column(column.label, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(row[column.key], column.kind) for column in columns))
    wide().print(table, markup=False)


def print_report_path(html: Path | None) -> None:
    if html is not None:
        Console(stderr=True).print(f"report: {html}", highlight=False, soft_wrap=True, markup=False)
