"""Runs the demo: pushes orders, runs the pipeline, prints and writes the report."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ackwise.client import Connection
from ackwise.connect import connect
from ackwise.demo.orders import bill, orders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ackwise.spark.pipelines import Totals
    from ackwise.spark.reports.summaries import DeadLetterSummary

QUEUE, RESULTS, GROUP = "orders", "invoices", "billing"
PUSH = 500


def run(messages: int, seed: int, out: Path) -> Report:
    """Run the demo. The last printed line, `DEMO {…}`, is for programs."""
    # Imported here: Spark is an extra, and `--help` must not wait for it.
    from ackwise.spark import session
    from ackwise.spark.reports.pages import write_dead_letter_report

    console = Console()
    with tempfile.TemporaryDirectory(prefix="ackwise-demo-") as folder:
        url = f"sqlite:///{folder}/demo.db"
        with connect(url) as queue:
            _push(queue, messages, seed)
        console.print(f"pushed {messages:,} orders; starting Spark", highlight=False)
        spark = session("ackwise demo")
        try:
            started = time.perf_counter()
            totals = _pipeline(spark, url)
            took = time.perf_counter() - started
            letters = _dead_letters(spark, url)
        finally:
            spark.stop()
        with connect(url) as queue:
            report = _report(queue, totals, took, letters)
    path = out / "report.html"
    write_dead_letter_report(path, letters, outcomes=report.outcomes())
    print_report(report, path)
    summary = {"pushed": report.pushed, "acked": report.acked, "dead": report.dead, "outputs": report.outputs}
    print("DEMO " + json.dumps({**summary, "report": str(path)}, separators=(",", ":")), flush=True)
    return report


def _push(queue: Connection, messages: int, seed: int) -> None:
    queue.create_queue(QUEUE)
    items = orders(messages, seed)
    while batch := list(islice(items, PUSH)):
        queue.push_many(QUEUE, batch)


def _pipeline(spark: SparkSession, url: str) -> Totals:
    from ackwise.spark import pipeline

    # Short waits, so that the demo ends quickly.
    orders = pipeline(spark, url).consume(QUEUE, GROUP, retry_limit=3, backoff=[0.1])
    return orders.map(bill, returns="order long, cents long").produce(RESULTS).run(progress=True)


def _dead_letters(spark: SparkSession, url: str) -> DeadLetterSummary:
    from ackwise.spark.jobs.dead_letter_report import summarised
    from ackwise.spark.jobs.tables import table

    letters = table(spark, url, "dead_letters", queue=QUEUE, group=GROUP)
    return summarised(letters, datetime.now(UTC), queue=QUEUE, group=GROUP)


def _report(queue: Connection, totals: Totals, took: float, letters: DeadLetterSummary) -> Report:
    stats = queue.stats(QUEUE)
    (group,) = stats.groups
    return Report(
        seconds=took,
        pushed=stats.messages,
        acked=group.acked,
        dead=group.dead,
        retried=totals.retried,
        unfinished=group.lag,
        outputs=queue.stats(RESULTS).messages if group.acked else 0,
        partitions=stats.partitions,
        errors=[(row["reason"], row["error"], row["count"]) for row in letters.errors],
    )


@dataclass(frozen=True, slots=True)
class Report:
    """Result of the demo."""

    seconds: float
    pushed: int
    acked: int
    dead: int
    retried: int
    unfinished: int
    outputs: int
    partitions: int
    errors: list[tuple[str, str, int]]
    """Dead letters by (reason, error), with their count."""

    def outcomes(self) -> list[tuple[str, int]]:
        return [
            ("pushed", self.pushed),
            ("acked", self.acked),
            ("dead-lettered", self.dead),
            ("unfinished", self.unfinished),
            ("retries on the way", self.retried),
            ("results pushed with their ack", self.outputs),
        ]


def print_report(report: Report, path: Path) -> None:
    console = Console()
    outcomes = Table("outcome", "messages", title=f"{report.partitions} partitions, {report.seconds:.1f} s")
    for name, count in report.outcomes():
        outcomes.add_row(name, f"{count:,}")
    outcomes.columns[1].justify = "right"
    console.print(outcomes)
    errors = Table("reason", "error", "messages", title="dead letters by error")
    for reason, error, count in report.errors:
        errors.add_row(reason, error, f"{count:,}")
    errors.columns[2].justify = "right"
    console.print(errors)
    console.print(f"report: {path}", highlight=False, soft_wrap=True)
