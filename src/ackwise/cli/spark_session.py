"""Spark session of a command, and the options of commands that can run on Spark."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ackwise.cli.arguments import opened
from ackwise.core.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str | None,
    typer.Option("--master", help="Spark master, such as spark://host:7077.", show_default="local[*]"),
]
Html = Annotated[Path | None, typer.Option("--html", metavar="PATH", help="Also write an HTML page with charts.")]


class Engine(StrEnum):
    """Where a report runs."""

    LOCAL = "local"
    SPARK = "spark"


EngineName = Annotated[
    Engine, typer.Option("--engine", help="local reads in this process, spark is for large stores. Same output.")
]


def check_master(engine: Engine, master: str | None) -> None:
    if master is not None and engine is not Engine.SPARK:
        raise BadInput("--master is for Spark; add --engine spark")


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


def print_report_path(html: Path | None) -> None:
    if html is not None:
        print(f"report: {html}", file=sys.stderr)
