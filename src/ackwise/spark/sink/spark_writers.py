"""Spark's writer hooks. They commit while a task runs, not when Spark commits the batch.

A repeated task is safe: a settlement names its delivery, and a push its transaction id.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ackwise.spark.errors import marked_errors


class PartitionWriter(Protocol):
    """Writes the rows of one Spark partition. `remarks` makes a warning from the counts."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Counter[str]: ...

    def remarks(self, counts: Counter[str]) -> str | None: ...


class WriteCounts(WriterCommitMessage):
    """Counts of one task."""

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts


def _report(task: PartitionWriter, messages: Sequence[WriterCommitMessage | None], where: str) -> None:
    total = sum((message.counts for message in messages if isinstance(message, WriteCounts)), Counter[str]())
    remark = task.remarks(total)
    if remark:
        print(f"ackwise: {where}{remark}", file=sys.stderr, flush=True)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, task: PartitionWriter) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with marked_errors():
            return WriteCounts(self._task.run(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _report(self._task, messages, "")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Does nothing: settled and pushed rows stay, and a rerun skips them."""


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, task: PartitionWriter) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with marked_errors():
            return WriteCounts(self._task.run(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _report(self._task, messages, f"batch {batchId}: ")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing, as for a batch."""
