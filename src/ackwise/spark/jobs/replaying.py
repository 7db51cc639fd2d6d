"""`replay`: archived messages are pushed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwise.client.moments import instant
from ackwise.core import limits
from ackwise.core.answers import Receipts
from ackwise.core.commands import Push
from ackwise.core.messages import JSON, NewMessage
from ackwise.core.native import payloads
from ackwise.spark.failing import plainly
from ackwise.spark.jobs.manifests import Archive
from ackwise.spark.reach import absolute, kept
from ackwise.spark.refusals import told

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
    """Push a slice of the archive again, to the queue it came from or to another; rows are `queue, pushed, duplicates`.

    `since` and `until` bound `created_at`, `where` is Spark SQL over the archive's columns. Each partition keeps its
    order. The transaction id of a replayed message is made of its id: replaying it twice pushes it once, as long as the
    queue remembers transaction ids. `copy` pushes it once more: a name for that copy, or True for a new one.
    """
    if to_queue is not None:
        limits.name(to_queue, "to_queue")
    chosen = _slice(Archive(spark, path).read(), queue, where, since, until)
    target = F.lit(to_queue) if to_queue is not None else F.col("queue")
    blamed = None if where is None else f"--where {where!r:.200}"
    if dry_run:
        counts = chosen.groupBy(target.alias("queue")).agg(F.count("*").alias("pushed"))
        rows = counts.select("queue", "pushed", F.lit(0).cast("long").alias("duplicates"))
    else:
        prefix = f"replay:{uuid4().hex if copy is True else copy}:" if copy else "replay:"
        lane = ("queue", "partition_id", "priority")
        ordered = chosen.withColumn("target", target).repartition(*lane).sortWithinPartitions(*lane, "seq")
        rows = ordered.mapInArrow(_pusher(absolute(url), prefix), RESULT)
        rows = rows.groupBy("queue").agg(F.sum("pushed").alias("pushed"), F.sum("duplicates").alias("duplicates"))
    with told(blamed):
        # Collected here: a DataFrame may be looked at any number of times, and this one pushes.
        found = [(row["queue"], row["pushed"], row["duplicates"]) for row in rows.collect()]
    return spark.createDataFrame(sorted(found), RESULT)


def _slice(
    messages: DataFrame, queue: str | None, where: str | None, since: datetime | None, until: datetime | None
) -> DataFrame:
    created = F.unix_micros("created_at")
    if queue is not None:
        messages = messages.filter(F.col("queue") == limits.name(queue, "queue"))
    # The day is in the path of a file: those of other days are not even opened.
    if since is not None:
        messages = messages.filter(
            (created >= instant(since, "since")) & (F.col("day") >= since.astimezone(UTC).date())
        )
    if until is not None:
        messages = messages.filter((created < instant(until, "until")) & (F.col("day") <= until.astimezone(UTC).date()))
    if where is None:
        return messages
    with told(f"--where {where!r:.200}"):
        return messages.filter(F.expr(where))


def _pusher(url: str, prefix: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def push(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: dict[str, list[int]] = {}
        for target, messages in _pages(batches, prefix):
            receipts: Receipts = kept(url).transport.send(Push(queue=target, messages=messages))
            repeated = sum(receipt.status == "duplicate" for receipt in receipts)
            mine = counts.setdefault(target, [0, 0])
            mine[0] += len(messages) - repeated
            mine[1] += repeated
        names, pushed, repeated_all = list(counts), [c[0] for c in counts.values()], [c[1] for c in counts.values()]
        columns = [pa.array(names, pa.string()), pa.array(pushed, pa.int64()), pa.array(repeated_all, pa.int64())]
        yield pa.record_batch(columns, names=["queue", "pushed", "duplicates"])

    return plainly(push)


def _pages(batches: Iterator[pa.RecordBatch], prefix: str) -> Iterator[tuple[str, list[NewMessage]]]:
    """Messages for one queue each, as many as go in one commit."""
    page: list[NewMessage] = []
    target, size = "", 0
    for batch in batches:
        for row in batch.to_pylist():
            if page and (row["target"] != target or len(page) >= ROWS_PER_PUSH or size >= BYTES_PER_PUSH):
                yield target, page
                page, size = [], 0
            message = _again(row, prefix)
            page.append(message)
            target, size = row["target"], size + len(message.payload)
    if page:
        yield target, page


def _again(row: dict[str, object], prefix: str) -> NewMessage:
    body, kind = str(row["payload"]).encode(), str(row["content_type"])
    if kind != JSON:
        body = payloads.given(msgspec.Raw(body), kind)
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
