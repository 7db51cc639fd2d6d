"""Stream reader of log mode: reads messages without leases or settlements.

A repeated batch has the same rows, so this mode suits aggregates and analytics. With a group the reader moves the
group's cursor, so that lag is visible. It moves the cursor only after Spark has committed the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ackwise.core.commands import AdvanceGroup, ConfigureGroup
from ackwise.core.errors import Conflict, DataLost, UnknownQueue
from ackwise.core.ids import LaneId
from ackwise.core.lane_range import LaneRange
from ackwise.core.queries import ListCursors, ListLanes
from ackwise.core.rows import LaneRow
from ackwise.spark.connections import StoreConnection, open_connection, task_connection
from ackwise.spark.errors import one_line_errors, warn_missing_queue
from ackwise.spark.source import schemas
from ackwise.spark.source.lane_ranges import BatchBuilder, SourceRange, TaskRanges, assign_ranges
from ackwise.spark.source.options import SourceOptions

Offset = dict[str, Any]
Positions = dict[int, int]
"""By lane: the next seq to read."""


class LogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of one query. It lives in a process beside the driver, and copies of it read on the executors."""

    def __init__(self, options: SourceOptions, wanted: StructType) -> None:
        options.check_stream()
        self._queue, self._options = options.needed_queue, options
        self._schema = schemas.pruned(wanted, schemas.full(schemas.STREAM, options))
        self._opened: StoreConnection | None = None
        self._initial: Offset | None = None
        self._frozen: Positions | None = None
        self._advanced: Positions = {}
        self._missing = False
        """Whether the queue does not exist yet."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def _connection(self) -> StoreConnection:
        if self._opened is None:
            self._opened = open_connection(self._options.url, duties=True)
        return self._opened

    def _lanes(self) -> list[LaneRow]:
        """Lanes of the queue. No lane while the queue does not exist."""
        try:
            lanes = self._connection.transport.ask(ListLanes(queue=self._queue))
        except UnknownQueue:
            if not self._missing:
                warn_missing_queue(self._queue)
            self._missing = True
            return []
        if self._missing and self._options.group is not None:
            # The query began before the queue, so all messages of the queue are new.
            self._connection.transport.send(ConfigureGroup(queue=self._queue, group=self._options.group))
        self._missing = False
        return lanes

    @one_line_errors
    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = {lane.lane: lane.head for lane in self._lanes()}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.rows_per_trigger)

    @one_line_errors
    def initialOffset(self) -> Offset:
        if self._initial is None:
            self._initial = self._offset(self._first_positions())
        return self._initial

    def _first_positions(self) -> Positions:
        """Positions of a query without a checkpoint: the group's cursor, or `startingPosition` without a group."""
        group, start = self._options.group, self._options.start
        if group is not None and (self._lanes() or not self._missing):
            self._connection.transport.send(ConfigureGroup(queue=self._queue, group=group, start=start))
            cursors = self._connection.transport.ask(ListCursors(queue=self._queue, group=group))
            return {cursor.lane: cursor.next for cursor in cursors}
        lanes = self._lanes()
        if start == "new":
            return {lane.lane: lane.head for lane in lanes}
        return {lane.lane: lane.start if start == "all" else self._seq_at(lane, start) for lane in lanes}

    def _seq_at(self, lane: LaneRow, instant: int) -> int:
        """The first message pushed at or after an instant."""
        lo, hi = lane.start, lane.head
        while lo < hi:
            middle = (lo + hi) // 2
            page = next(
                iter(self._connection.shelf.pages([LaneRange(LaneId(lane.lane), middle, middle + 1)], ["created_at"])),
                None,
            )
            if page is None or page.columns["created_at"].cast(pa.int64())[0].as_py() >= instant:
                hi = middle
            else:
                lo = middle + 1
        return lo

    def _offset(self, positions: Positions) -> Offset:
        return {
            "queue": self._queue,
            "group": self._options.group,
            "lanes": {str(lane): positions[lane] for lane in sorted(positions)},
        }

    def _positions(self, offset: Offset) -> Positions:
        if "lanes" not in offset:
            raise Conflict(
                "the checkpoint was written in lease mode; option mode must stay lease, or use a new checkpoint"
            )
        for key, expected in (("queue", self._queue), ("group", self._options.group)):
            if offset.get(key) != expected:
                raise Conflict(
                    f"the checkpoint belongs to {key} {offset.get(key)!r}, and option {key} is {expected!r}; "
                    "use its own checkpoint for each"
                )
        return {int(lane): seq for lane, seq in offset["lanes"].items()}

    @one_line_errors
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        positions = self._positions(start)
        self._advance(positions)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        lanes = self._lanes()
        heads = {lane.lane: lane.head for lane in lanes} if self._frozen is None else self._frozen
        begins = {lane.lane: positions.get(lane.lane, lane.start) for lane in lanes}
        ends = _limit({lane: (begins.get(lane, 0), head) for lane, head in heads.items()}, most)
        if all(ends[lane] <= begins.get(lane, 0) for lane in ends):
            return start
        return self._offset({**positions, **ends})

    def _advance(self, positions: Positions) -> None:
        """Move the group's cursor to the positions that Spark has committed."""
        moved = {lane: seq for lane, seq in positions.items() if seq > self._advanced.get(lane, 0)}
        if self._options.group is not None and moved:
            self._connection.transport.send(AdvanceGroup(queue=self._queue, group=self._options.group, lanes=moved))
        self._advanced |= moved

    @one_line_errors
    def reportLatestOffset(self) -> Offset | None:
        return self._offset({lane.lane: lane.head for lane in self._lanes()})

    @one_line_errors
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        begins, ends = self._positions(start), self._positions(end)
        ranges = []
        for row in self._lanes():
            lo, hi = begins.get(row.lane, 0), ends.get(row.lane, 0)
            if lo < row.start and lo < hi and row.lane in begins:
                self._check_loss(row, lo, min(hi, row.start))
            if lo < hi:
                lo = max(lo, row.start)
                ranges.append(
                    SourceRange(row.lane, self._queue, row.partition, row.partition_id, row.priority, lo, max(lo, hi))
                )
        return [TaskRanges(part) for part in assign_ranges(ranges, self._options.partitions, split=True)]

    def _check_loss(self, lane: LaneRow, lo: int, hi: int) -> None:
        if self._options.fail_on_data_loss:
            raise DataLost(
                f"messages {lo} to {hi - 1} of partition {lane.partition!r} in queue {self._queue!r} were pruned "
                "before this query read them; set option failOnDataLoss=false to continue without them"
            )

    @one_line_errors
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskRanges)
        batches = BatchBuilder(self._schema, schemas.of_payload(self._options))
        return batches.read(task_connection(self._options.url).shelf, partition.ranges, None)

    def commit(self, end: Offset) -> None:
        """Does nothing. Spark calls it one batch late and never for the last, so `latestOffset` moves the group."""

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()


def _limit(lanes: dict[int, tuple[int, int]], most: int | None) -> Positions:
    """End of the batch in each lane: the lane's head, or `most` messages shared evenly between the lanes."""
    ends = {lane: hi for lane, (_, hi) in lanes.items()}
    if most is None or sum(max(0, hi - lo) for lo, hi in lanes.values()) <= most:
        return ends
    left = sorted(((max(0, hi - lo), lane) for lane, (lo, hi) in lanes.items()))
    for at, (size, lane) in enumerate(left):
        count = min(size, most // (len(left) - at))
        ends[lane] = lanes[lane][0] + count
        most -= count
    return ends
