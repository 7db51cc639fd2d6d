"""What people see while Spark works."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ackwise.spark.progress import SECONDS_BETWEEN_LINES, StreamProgress, Tasks, batch_progress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=200)


def pipe() -> Console:
    return Console(file=io.StringIO(), force_terminal=False)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_stream_says_a_line_now_and_then_and_one_at_the_end() -> None:
    clock, console = Clock(), pipe()
    with StreamProgress("orders", console, clock) as progress:
        progress.update(0, {}, None)
        for seconds in range(1, 12):
            clock.now = seconds * SECONDS_BETWEEN_LINES / 5
            progress.update(seconds * 1000, {"acked": seconds * 990, "dead": seconds * 10}, 11_000 - seconds * 1000)
        progress.update(11_000, {"acked": 10_890, "dead": 110, "stale": 2}, 0, done=True)
    assert said(console).splitlines() == [
        "orders: 0 rows, acked 0, retried 0, dead 0",
        "orders: 5,000 of 11,000 rows, acked 4,950, retried 0, dead 50, lag 6,000",
        "orders: 10,000 of 11,000 rows, acked 9,900, retried 0, dead 100, lag 1,000",
        "orders: 11,000 rows in 11.0 s, acked 10,890, retried 0, dead 110, stale 2, lag 0",
    ]


def test_stream_draws_a_bar_on_a_terminal() -> None:
    console = terminal()
    with StreamProgress("orders", console) as progress:
        progress.update(700, {"acked": 690, "retried": 8, "dead": 2}, 300)
        progress.update(1000, {"acked": 985, "retried": 8, "dead": 15}, 0, done=True)
    assert "1000/1000" in said(console)
    assert "acked 985, retried 8, dead 15, lag 0" in said(console)
    assert "rows in" not in said(console)


def test_batch_job_draws_a_bar_that_goes_away(spark: SparkSession) -> None:
    console = terminal()
    with batch_progress(spark, "counting", console):
        assert spark.range(1000).count() == 1000
    assert "counting" in said(console)
    assert said(console).endswith("\x1b[2K")


def test_batch_job_is_silent_elsewhere(spark: SparkSession) -> None:
    console = pipe()
    with batch_progress(spark, "counting", console):
        assert spark.range(1000).count() == 1000
    assert said(console) == ""


def test_tasks_are_counted_while_they_run_and_after(spark: SparkSession, tmp_path: Path) -> None:
    go = tmp_path / "go"

    def second_half_waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        while task is not None and task.partitionId() >= 2 and not go.exists():
            time.sleep(0.01)
        yield from batches

    tasks = Tasks(spark.sparkContext.statusTracker())
    seen = [tasks.count()]
    with ThreadPoolExecutor(1) as threads:
        job = threads.submit(spark.range(0, 4, 1, 4).mapInArrow(second_half_waits, "id long").collect)
        while seen[-1] != (2, 4):
            seen.append(tasks.count())
        go.touch()
        assert len(job.result()) == 4
    while seen[-1] != (4, 4):
        seen.append(tasks.count())
    assert seen[0] == (0, 0)
    assert seen == sorted(seen)
