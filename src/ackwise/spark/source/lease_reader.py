"""Stream reader of lease mode: an offset is the number of a claim, and a batch is the messages of that claim.

The reader claims under the key `claimName/n` before Spark stores the offset. When Spark runs a batch again, it gets the
same claim with the messages that are not settled yet. A retried message comes in a later claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ackwise.core import ids, validation
from ackwise.core.errors import BadInput
from ackwise.core.queries import ListHeld
from ackwise.spark.connections import StoreConnection, task_connection
from ackwise.spark.errors import one_line_errors
from ackwise.spark.source import lane_ranges, schemas
from ackwise.spark.source.lane_ranges import BatchBuilder, TaskRanges
from ackwise.spark.source.lease_claims import LeaseClaims, Offset
from ackwise.spark.source.options import SourceOptions

LONGEST_NONCE = 32
LONGEST_CLAIM_NAME = validation.MAX_NAME - len("spark::") - LONGEST_NONCE


class LeaseReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of one query. It lives in a process beside the driver, and copies of it read on the executors."""

    def __init__(self, options: SourceOptions, wanted: StructType) -> None:
        options.check_stream()
        self._queue, self._group = options.needed_queue, options.needed_group
        self._options = options
        _check_lengths(options)
        known = schemas.full(schemas.STREAM, options)
        self._ranges_only = wanted == schemas.RANGES
        self._schema = wanted if self._ranges_only else schemas.pruned(wanted, known)
        self._state: LeaseClaims | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_state": None}

    @property
    def _claims(self) -> LeaseClaims:
        if self._state is None:
            self._state = LeaseClaims(self._options, self._queue, self._group)
        return self._state

    @one_line_errors
    def prepareForTriggerAvailableNow(self) -> None:
        self._claims.freeze()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.rows_per_trigger)

    @one_line_errors
    def initialOffset(self) -> Offset:
        return self._claims.initial()

    @one_line_errors
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        return self._claims.latest(start, self._rows(limit))

    def _rows(self, limit: ReadLimit) -> int:
        if isinstance(limit, ReadMaxRows):
            return min(max(1, limit.max_rows), validation.MAX_BATCH)
        return validation.MAX_BATCH if isinstance(limit, ReadAllAvailable) else self._options.rows_per_trigger

    @one_line_errors
    def reportLatestOffset(self) -> Offset | None:
        return self._claims.report()

    @one_line_errors
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return list(self._claims.partitions(end))

    @one_line_errors
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskRanges)
        context = TaskContext.get()
        if context is not None and context.attemptNumber():
            partition = _still_held(task_connection(self._options.url), partition)
        if self._ranges_only:
            return iter([lane_ranges.encode(partition)])
        batches = BatchBuilder(self._schema, schemas.of_payload(self._options))
        return batches.read(task_connection(self._options.url).shelf, partition.ranges, partition.lease)

    def commit(self, end: Offset) -> None:
        """Does nothing. Spark calls it one batch late and never for the last, so `latestOffset` finishes batches."""

    def stop(self) -> None:
        if self._state is not None:
            self._state.close()


def _check_lengths(options: SourceOptions) -> None:
    """Reject a claim name or nonce that is too long.

    Both are parts of the owner's name. Two queries with truncated names could have the same owner.
    """
    if len(options.claim_name) > LONGEST_CLAIM_NAME:
        raise BadInput(
            f"option claimName is longer than {LONGEST_CLAIM_NAME} characters; without the option it is the group"
        )
    if options.nonce is not None and not 0 < len(options.nonce) <= LONGEST_NONCE:
        raise BadInput(f"option nonce must have 1 to {LONGEST_NONCE} characters")


def _still_held(connection: StoreConnection, task: TaskRanges) -> TaskRanges:
    """The ranges of a repeated task without the messages that an earlier attempt has settled."""
    assert task.lease is not None
    held = connection.transport.ask(ListHeld(lease_id=ids.lease_id(*task.lease)))
    rest = []
    for lane_range in task.ranges:
        for row in held:
            lo, hi = max(lane_range.lo, row.lo), min(lane_range.hi, row.hi)
            if row.lane == lane_range.lane and lo < hi:
                rest.append(msgspec.structs.replace(lane_range, lo=lo, hi=hi))
    return TaskRanges(rest, task.lease)
