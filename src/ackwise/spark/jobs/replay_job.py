"""Job `replay`: pushes archived messages again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwise.core import validation
from ackwise.core.commands import Push
from ackwise.core.messages import JSON, NewMessage
from ackwise.core.policy import NEW_QUEUE_POLICY
from ackwise.spark.connections import absolute, task_connection
from ackwise.spark.errors import one_line_errors, translate_spark_errors
from ackwise.spark.jobs.archive_manifest import Archive
from ackwise.wire import payloads
from ackwise.wire.timestamps import instant

ROWS_PER_PUSH = 1000
BYTES_PER_PUSH = 4 << 20
RESULT = "queue string, pushed long, duplicates long"


def replay(
    spark: SparkSession,
    path: str,
    url: str,
    queue: str | None = None,
    *,
    to_queue: str | None = None,
    where: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    copy: str | bool = False,
    dry_run: bool = False,
) -> DataFrame:
    """Push archived messages again, to their queue or to `to_queue`. Rows are `queue, pushed, duplicates`.

    `since` and `until` limit `created_at`. `where` is Spark SQL over the archive's columns. Each partition keeps its
    order. The transaction id of a replayed message derives from its id, so a second replay pushes nothing while the
    queue remembers transaction ids. `copy` pushes another copy: its name, or True for a new name.
    """
    if to_queue is not None:
        validation.name(to_queue, "to_queue")
    selected = _select(Archive(spark, path).read(), queue, where, since, until)
    target = F.lit(to_queue) if to_queue is not None else F.col("queue")
    input_name = None if where is None else f"--where {where!r:.200}"
    if dry_run:
        counts = selected.groupBy(target.alias("queue")).agg(F.count("*").alias("pushed"))
        rows = counts.select("queue", "pushed", F.lit(0).cast("long").alias("duplicates"))
    else:
        prefix = f"replay:{uuid4().hex if copy is True else copy}:" if copy else "replay:"
        lane = ("queue", "partition_id", "priority")
        ordered = selected.withColumn("target", target).repartition(*lane).sortWithinPartitions(*lane, "seq")
        rows = ordered.mapInArrow(_pusher(absolute(url), prefix), RESULT)
        rows = rows.groupBy("queue").agg(F.sum("pushed").alias("pushed"), F.sum("duplicates").alias("duplicates"))
    with translate_spark_errors(input_name):
        # Collected here, because each evaluation of this DataFrame pushes.
        counts_by_queue = [(row["queue"], row["pushed"], row["duplicates"]) for row in rows.collect()]
    return spark.createDataFrame(sorted(counts_by_queue), RESULT)


def _select(
    messages: DataFrame, queue: str | None, where: str | None, since: datetime | None, until: datetime | None
) -> DataFrame:
    created = F.unix_micros("created_at")
    if queue is not None:
        messages = messages.filter(F.col("queue") == validation.name(queue, "queue"))
    # The day is part of a file's path, so Spark does not open files of other days.
    if since is not None:
        messages = messages.filter(
            (created >= instant(since, "since")) & (F.col("day") >= since.astimezone(UTC).date())
        )
    if until is not None:
        messages = messages.filter((created < instant(until, "until")) & (F.col("day") <= until.astimezone(UTC).date()))
    if where is None:
        return messages
    with translate_spark_errors(f"--where {where!r:.200}"):
        return messages.filter(F.expr(where))


def _pusher(url: str, prefix: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def push(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: dict[str, list[int]] = {}
        for target, messages in _pages(batches, prefix):
            receipts = task_connection(url).transport.send(
                Push(queue=target, messages=messages, create=NEW_QUEUE_POLICY)
            )
            repeated = sum(receipt.status == "duplicate" for receipt in receipts)
            queue_counts = counts.setdefault(target, [0, 0])
            queue_counts[0] += len(messages) - repeated
            queue_counts[1] += repeated
        names, pushed, repeated_all = list(counts), [c[0] for c in counts.values()], [c[1] for c in counts.values()]
        columns = [pa.array(names, pa.string()), pa.array(pushed, pa.int64()), pa.array(repeated_all, pa.int64())]
        yield pa.record_batch(columns, names=["queue", "pushed", "duplicates"])

    return one_line_errors(push)


def _pages(batches: Iterator[pa.RecordBatch], prefix: str) -> Iterator[tuple[str, list[NewMessage]]]:
    """Pages of messages for one queue, one push each."""
    page: list[NewMessage] = []
    target, size = "", 0
    for batch in batches:
        for row in batch.to_pylist():
            if page and (row["target"] != target or len(page) >= ROWS_PER_PUSH or size >= BYTES_PER_PUSH):
                yield target, page
                page, size = [], 0
            message = _replayed(row, prefix)
            page.append(message)
            target, size = row["target"], size + len(message.payload)
    if page:
        yield target, page


def _replayed(row: dict[str, object], prefix: str) -> NewMessage:
    body, kind = str(row["payload"]).encode(), str(row["content_type"])
    if kind != JSON:
        body = payloads.from_request(msgspec.Raw(body), kind)
    elif not payloads.are_json([body]):
        kind = payloads.BYTES
    headers = row["headers"]
    assert headers is None or isinstance(headers, list | dict)
    return NewMessage(
        body,
        partition=str(row["partition"]),
        priority=int(str(row["priority"])),
        transaction_id=f"{prefix}{row['message_id']}",
        headers=dict(headers) if headers else None,
        content_type=kind,
    )
