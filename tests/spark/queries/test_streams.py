"""Streaming queries in Spark: from the source through Spark to the sinks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from ackwise.spark.errors import marked_line
from tests.spark.queue_harness import QueueHarness, until
from tests.spark.running import run_python

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def stream(spark: SparkSession, harness: QueueHarness, **options: Any) -> DataFrame:
    given = {"url": harness.url, "queue": "q", "group": "g", **options}
    return spark.readStream.format("ackwise").options(**given).load()


def settling(rows: DataFrame, harness: QueueHarness, checkpoint: Path) -> StreamingQuery:
    writer = rows.writeStream.format("ackwise").option("url", harness.url).option("mode", "settle")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def done(query: StreamingQuery) -> list[int]:
    """How many rows each of its batches had."""
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def failure(query: StreamingQuery) -> str:
    """The one line of ours among those of Spark."""
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    line = marked_line(caught.value)
    assert line is not None, str(caught.value)
    return line


OUTCOME = "case n % 10 when 7 then 'retry' when 3 then 'reject' else 'ack' end as outcome"


def test_stream_into_the_settle_sink_settles_each_outcome(
    spark: SparkSession, harness: QueueHarness, tmp_path: Path
) -> None:
    """The format is not registered. One message in ten is retried to the end, one is rejected, the rest is acked."""
    harness.configure(retry_limit=3)
    for partition in range(4):
        harness.number(50, partition=f"p{partition}", first=50 * partition)
    rows = stream(spark, harness, payloadSchema="n long", maxRowsPerTrigger=120)
    outcomes = rows.selectExpr("delivery_id", OUTCOME, "'no' as error")
    sizes = done(settling(outcomes, harness, tmp_path / "checkpoint"))
    assert sum(sizes) == 200 + 2 * 20
    assert sizes[0] == 120
    assert harness.counts() == {"acked": 160, "dead": 40}
    failures = {letter.transaction_id: letter.failures for letter in harness.dead() if letter.reason == "retry_limit"}
    assert failures == {f"t{n}": 3 for n in range(200) if n % 10 == 7}


def test_rerun_task_leaves_out_settled_messages(
    spark: SparkSession, local_harness: QueueHarness, tmp_path: Path
) -> None:
    """Its first attempt dies in the middle, when the sink has settled something."""
    local_harness.configure(order="strict")
    local_harness.number(30_000)
    url, seen = local_harness.url, tmp_path / "seen"

    def dies_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        rows = 0
        for batch in batches:
            if task.attemptNumber() == 0 and rows >= 20_000:
                with contextlib.closing(QueueHarness(url)) as harness:
                    until(lambda: bool(harness.counts().get("acked")))
                raise RuntimeError("the first attempt dies")
            rows += batch.num_rows
            yield batch
        seen.write_text(f"{task.attemptNumber()} {rows}")

    rows = stream(spark, local_harness, maxPartitions=1).selectExpr("delivery_id", "'ack' as outcome")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        done(settling(rows.mapInArrow(dies_at_first, rows.schema), local_harness, tmp_path / "checkpoint"))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    attempt, again = map(int, seen.read_text().split())
    assert (attempt, again < 30_000) == (1, True)
    assert local_harness.counts() == {"acked": 30_000}


LOSES_ITS_LEASE = """
import sys
import ackwise
from ackwise.spark import session

url, checkpoint = {url!r}, {checkpoint!r}

def loses_its_lease(batches):
    for batch in batches:
        with ackwise.connect(url) as queue:
            if len(queue.leases("q", "g", live_only=False)) == 1:
                queue.seek("q", "g", to="start")
        yield batch

spark = session(master="local[1]")
source = spark.readStream.format("ackwise").options(url=url, queue="q", group="g").load()
rows = source.selectExpr("delivery_id", "'ack' as outcome")
sink = rows.mapInArrow(loses_its_lease, rows.schema).writeStream.format("ackwise").options(url=url, mode="settle")
sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.long
def test_rows_that_come_too_late_are_said(local_harness: QueueHarness, folder: Path, tmp_path: Path) -> None:
    """And on the screen: Spark has no other place for it."""
    local_harness.number(20)
    said = run_python(LOSES_ITS_LEASE.format(url=local_harness.url, checkpoint=str(tmp_path / "c")), folder)
    assert re.fullmatch(r"ackwise: batch 0: .*\b20 stale\b.*\n", said.err)
    assert said.code == 0
    assert local_harness.counts() == {"acked": 20}


def test_filtered_rows_are_acked_at_the_end(spark: SparkSession, local_harness: QueueHarness, tmp_path: Path) -> None:
    local_harness.number(30)
    rows = stream(spark, local_harness, payloadSchema="n long").filter("n % 3 = 0")
    done(settling(rows.select("delivery_id", f.lit("ack").alias("outcome")), local_harness, tmp_path / "checkpoint"))
    assert local_harness.counts() == {"acked": 30}


def test_second_query_of_a_name_is_refused(spark: SparkSession, local_harness: QueueHarness, tmp_path: Path) -> None:
    """The second is told which option makes it another; the first is not disturbed."""
    local_harness.number(10)
    go = tmp_path / "go"

    def waits(batch: DataFrame, number: int) -> None:
        if number == 0:
            second = settling(
                stream(spark, local_harness).select("delivery_id", f.lit("ack").alias("outcome")),
                local_harness,
                tmp_path / "second",
            )
            go.write_text(failure(second))
        batch.count()

    writer = stream(spark, local_harness).writeStream.foreachBatch(waits)
    done(writer.option("checkpointLocation", str(tmp_path / "first")).trigger(availableNow=True).start())
    assert go.read_text().startswith(
        "option claimName: 'g' is in use by another query (claim g/1, group 'g'); give each"
    )
    assert local_harness.counts() == {"acked": 10}


def test_checkpoint_of_another_queue(spark: SparkSession, local_harness: QueueHarness, tmp_path: Path) -> None:
    local_harness.number(3)
    local_harness.number(3, queue="other")
    acks = [f.col("delivery_id"), f.lit("ack").alias("outcome")]
    done(settling(stream(spark, local_harness).select(*acks), local_harness, tmp_path / "c"))
    other = settling(stream(spark, local_harness, queue="other").select(*acks), local_harness, tmp_path / "c")
    assert failure(other).startswith("the checkpoint belongs to queue 'q', and option queue is 'other'")


def test_failed_batch_settles_nothing_and_restart_takes_over(
    spark: SparkSession, local_harness: QueueHarness, tmp_path: Path
) -> None:
    local_harness.number(40)
    fails = tmp_path / "fails"
    fails.touch()

    def work(batch: DataFrame, number: int) -> None:
        assert not fails.exists(), "not yet"
        rows = batch.select("delivery_id", f.lit("ack").alias("outcome"))
        rows.write.format("ackwise").option("url", local_harness.url).option("mode", "settle").mode("append").save()

    def started() -> StreamingQuery:
        writer = stream(spark, local_harness, maxRowsPerTrigger=25).writeStream.foreachBatch(work)
        return writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="not yet"):
        started().awaitTermination()
    assert local_harness.counts() == {"held": 25, "unread": 15}
    fails.unlink()
    assert done(started()) == [25, 15]
    assert local_harness.counts() == {"acked": 40}
    assert {lease.end_kind for lease in local_harness.leases(live_only=False)} >= {"superseded"}


def test_log_mode_counts_and_moves_its_group(spark: SparkSession, local_harness: QueueHarness, tmp_path: Path) -> None:
    for partition in range(3):
        local_harness.number(20, partition=f"p{partition}", first=20 * partition)
    rows = stream(spark, local_harness, mode="log", maxRowsPerTrigger=25)
    name = f"counts_{tmp_path.name.replace('-', '_')}"
    writer = rows.groupBy("partition").count().writeStream.outputMode("complete").format("memory").queryName(name)
    assert done(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()) == [
        25,
        25,
        10,
    ]
    assert {row["partition"]: row["count"] for row in spark.table(name).collect()} == {f"p{n}": 20 for n in range(3)}
    assert local_harness.counts() == {"acked": 60}


def test_push_sink_at_the_end_of_a_stream(spark: SparkSession, local_harness: QueueHarness, tmp_path: Path) -> None:
    local_harness.number(10)
    rows = stream(spark, local_harness, mode="log").select(
        "payload", "partition", f.concat(f.lit("copy-"), "transaction_id").alias("transaction_id")
    )
    writer = rows.writeStream.format("ackwise").option("url", local_harness.url).option("mode", "push")
    writer = writer.option("queue", "copy").option("checkpointLocation", str(tmp_path / "c"))
    done(writer.trigger(availableNow=True).start())
    assert sorted(local_harness.payloads("copy")) == sorted(local_harness.payloads("q"))


def test_progress_says_how_far_there_is_to_go(spark: SparkSession, local_harness: QueueHarness, tmp_path: Path) -> None:
    local_harness.number(30)
    rows = stream(spark, local_harness, maxRowsPerTrigger=10).select("delivery_id", f.lit("ack").alias("outcome"))
    query = settling(rows, local_harness, tmp_path / "c")
    done(query)
    (source,) = query.recentProgress[0].sources
    assert '"claim":1' in source.endOffset.replace(" ", "")
    assert '"lag"' in source.latestOffset
