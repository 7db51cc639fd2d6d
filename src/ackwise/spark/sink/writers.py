"""Spark's four hooks of a sink, over one task that does the work. Tasks write at once; nothing waits for the commit.

That is safe because both tasks may be run again: a settlement names its delivery, a push its transaction id.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ackwise.spark.failing import ours


class Task(Protocol):
    """What is done with the rows of one partition, and what of it is worth saying."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Counter[str]: ...

    def remarks(self, counts: Counter[str]) -> str | None: ...


class Written(WriterCommitMessage):
    """What one task did."""

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts


def _report(task: Task, messages: Sequence[WriterCommitMessage | None], where: str) -> None:
    total = sum((one.counts for one in messages if isinstance(one, Written)), Counter[str]())
    remark = task.remarks(total)
    if remark:
        print(f"ackwise: {where}{remark}", file=sys.stderr, flush=True)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, task: Task) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with ours():
            return Written(self._task.run(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _report(self._task, messages, "")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was written stays: it is settled or pushed, and a rerun finds it so."""


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, task: Task) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with ours():
            return Written(self._task.run(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _report(self._task, messages, f"batch {batchId}: ")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """As for a batch."""
