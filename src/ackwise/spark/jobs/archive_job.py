"""Job `archive`: writes finished messages to Parquet files and can remove them from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwise.spark.archive_folder import ArchiveLane, Lanes, lanes_to_archive, prune_archived, result_row
from ackwise.spark.connections import absolute, open_connection, task_connection
from ackwise.spark.errors import one_line_errors, translate_spark_errors
from ackwise.spark.jobs.archive_manifest import MESSAGES, Archive
from ackwise.spark.jobs.tables import Row, collected
from ackwise.spark.source.lane_ranges import BatchBuilder, SourceRange, assign_ranges

ROWS_PER_TASK = 200_000
RESULT = "queue string, messages long, missing long, pruned long, first_at timestamp, last_at timestamp"


def archive(spark: SparkSession, url: str, path: str, queue: str | None = None, *, prune: bool = False) -> DataFrame:
    """Archive the messages that every group has finished to `path`, partitioned by queue and day.

    A message is archived once, also if runs die and are repeated. Rows are `queue, messages, missing, pruned, first_at,
    last_at`. `missing` counts messages that retention removed before they were archived. With `prune` the store then
    removes the archived messages that every group has finished.
    """
    url = absolute(url)
    archived = Archive(spark, path)
    connection = open_connection(url, duties=False)
    try:
        lanes = lanes_to_archive(connection.transport, queue, archived.places)
        written = _write(spark, url, archived, lanes)
        pruned = prune_archived(connection.transport, lanes, archived.places) if prune else {}
    finally:
        connection.close()
    return spark.createDataFrame([result_row(name, lanes, written, pruned) for name in lanes], RESULT)


def _write(spark: SparkSession, url: str, archived: Archive, lanes: Lanes) -> dict[str, Row]:
    """Write the messages. Returns the counts by queue."""
    ahead = [lane for queue_lanes in lanes.values() for lane in queue_lanes if lane.settled > lane.place]
    if not ahead:
        return {}
    places = {lane.name: lane.settled for lane in ahead}
    ranges = [_range(lane) for lane in ahead]
    total = sum(map(len, ranges))
    tasks = min(spark.sparkContext.defaultParallelism, -(-total // ROWS_PER_TASK))
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    task_ranges = assign_ranges(ranges, tasks, split=True) if total else []
    if not task_ranges:
        archived.commit(None, places, 0, made_at)
        return {}
    with translate_spark_errors():
        staged = archived.stage(settled_messages(spark, url, task_ranges))
        written = collected(
            archived.staged(staged)
            .groupBy("queue")
            .agg(
                F.count("*").alias("messages"),
                F.min("created_at").alias("first_at"),
                F.max("created_at").alias("last_at"),
            )
        )
    archived.commit(staged, places, sum(row["messages"] for row in written), made_at)
    return {row["queue"]: row for row in written}


def _range(lane: ArchiveLane) -> SourceRange:
    row = lane.row
    return SourceRange(row.lane, lane.queue, row.partition, row.partition_id, row.priority, lane.lo, lane.settled)


def settled_messages(spark: SparkSession, url: str, task_ranges: list[list[SourceRange]]) -> DataFrame:
    """Messages of the ranges, with their day. Each list of ranges is one task."""
    read = spark.range(0, len(task_ranges), 1, len(task_ranges)).mapInArrow(_reader(url, task_ranges), MESSAGES)
    day = F.date_from_unix_date(F.floor(F.unix_micros("created_at") / 86_400_000_000).cast("int"))
    return read.withColumn("day", day).sortWithinPartitions("queue", "day", "partition_id", "priority", "seq")


def _reader(
    url: str, task_ranges: list[list[SourceRange]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from BatchBuilder(MESSAGES, None).read(task_connection(url).shelf, task_ranges[number], None)

    return one_line_errors(read)
