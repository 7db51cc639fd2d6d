"""Output of a batch: writes result files once per batch, and selects the columns to push."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ackwise.core.errors import BadInput
from ackwise.spark.hadoop_files import HadoopFolder
from ackwise.spark.pipelines.plan import Write
from ackwise.spark.source.schemas import STREAM

OPTIONAL = ("partition", "priority", "headers", "delay_seconds")
"""Optional columns of a transformed row: options of the push."""

WRITTEN = "_ackwise_written"
"""Marker file of a complete folder. Spark ignores files whose names begin with `_`."""

_CHAINED = {
    "Project",
    "Filter",
    "Generate",
    "ArrowEvalPython",
    "BatchEvalPython",
    "SubqueryAlias",
}
"""Plan nodes that keep the rows of one record next to each other in one task. `mapInArrow` is not one of them."""

_CACHED = "InMemoryRelation"


def write_batch(
    frame: DataFrame, batch: str, write: Write, failed: Sequence[str] = (), columns: Sequence[str] = ("*",)
) -> None:
    """Write `columns` of a batch. `failed` are the ids of messages that have no result."""
    if write.path is None:
        writer = frame.select(*columns).write.format(write.format).options(**write.options)
        writer.mode("append").save()
        return
    # Records are settled after they are written. A repeated batch has only the records that are not settled yet, so it
    # must not overwrite a complete folder. Results of records that failed the first time go to a second folder.
    folder, name, again = HadoopFolder(frame.sparkSession, write.path), f"batch={batch}", 0
    while folder.exists(f"{name}/{WRITTEN}"):
        missing = set(folder.text(f"{name}/{WRITTEN}").split())
        if not missing:
            return
        again += 1
        name = f"batch={batch}-{again}"
        failed = [message_id for message_id in failed if message_id in missing]
        ids = frame.sparkSession.createDataFrame([(message_id,) for message_id in missing], "message_id string")
        frame = frame.join(ids, "message_id", "left_semi")
    writer = frame.select(*columns).write.format(write.format).options(**write.options)
    writer.mode("overwrite").save(f"{folder.url}/{name}")
    folder.create(f"{name}/{WRITTEN}", "\n".join(failed))


def outputs(frame: DataFrame, parsed: Sequence[str] = ()) -> DataFrame:
    """Rows to push: `delivery_id`, `payload` and the optional columns.

    Without a column `payload`, the columns that a message does not have become one JSON object. `parsed` names the
    columns that were parsed from the payload.
    """
    if "delivery_id" not in frame.columns:
        raise BadInput(
            "produce needs the column delivery_id, and the transform has dropped it; keep it, or use mode log for "
            "aggregates over many records"
        )
    extras = [name for name in OPTIONAL if name in frame.columns]
    fields = [name for name in frame.columns if name not in (*STREAM.names, *OPTIONAL)]
    if "payload" in frame.columns:
        added = [name for name in fields if name not in parsed]
        if added:
            raise BadInput(
                f"produce finds payload and the column {added[0]!r}: drop payload to push the columns as JSON, or "
                "select payload without them"
            )
        payload = f.col("payload").cast("string").alias("payload")
    else:
        if not fields:
            raise BadInput("produce found no column to push: keep payload, or select the columns of the output")
        payload = f.to_json(f.struct(*(f.col(f"`{name}`") for name in fields)), {"ignoreNullFields": "false"}).alias(
            "payload"
        )
    return frame.select("delivery_id", payload, *extras)


def keeps_rows_together(frame: DataFrame, source: DataFrame) -> bool:
    """Whether no step after the source moved rows between tasks or within a task."""
    begin = _optimized(source)
    while begin.nodeName() in _CHAINED:
        begin = begin.children().head()
    node = _optimized(frame)
    while node.nodeName() in _CHAINED and node.children().size() == 1:
        node = node.children().head()
    # A frame that the transform caches also ends in a cached node, so both nodes must be the same cache.
    return bool(node.nodeName() == begin.nodeName() == _CACHED and node.cacheBuilder().equals(begin.cacheBuilder()))


def _optimized(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().optimizedPlan()
