"""The demo itself: a Spark pipeline bills orders, and every invoice commits with the ack of its order."""

from __future__ import annotations

import json
import tempfile
import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ackwise.client import Connection
from ackwise.connect import connect
from ackwise.core.policy import Backoff
from ackwise.demo.orders import bill, orders
from ackwise.demo.show import Report, print_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ackwise.spark.jobs.dead_letters import DeadLetterSummary
    from ackwise.spark.pipelines import Totals

MESSAGES = 20_000
QUEUE, RESULTS, GROUP = "orders", "invoices", "billing"
PUSH = 500


def run(messages: int, seed: int, out: Path) -> Report:
    """Run it, show it, write the report; the last line printed is for programs."""
    # Imported here: Spark is an extra, and whoever asks for help need not wait for it.
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
    queue.create_queue(QUEUE, retry_limit=3, backoff=Backoff(kind="fixed", seconds=0.1))
    items = orders(messages, seed)
    while batch := list(islice(items, PUSH)):
        queue.push_many(QUEUE, batch)


def _pipeline(spark: SparkSession, url: str) -> Totals:
    from ackwise.spark import pipeline

    billing = pipeline(spark, url).consume(QUEUE, GROUP).map(bill, returns="order long, cents long")
    return billing.produce(RESULTS).run(progress=True)


def _dead_letters(spark: SparkSession, url: str) -> DeadLetterSummary:
    from ackwise.spark.jobs.dead_letters import summarised
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
