"""Log mode: Spark's offset is a place in every lane, and a batch is what lies between two of them, again and again.

Nothing is leased or settled, so a batch that is run again has the same rows: the mode for aggregates and analytics.
With a group its progress is written to the group's cursor, where lag shows; the next batch begins only when the one
before is committed, so the cursor never runs ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ackwise.core.commands import AdvanceGroup, ConfigureGroup
from ackwise.core.errors import Conflict, DataLost
from ackwise.core.queries import CursorRow, GetQueue, LaneRow, ListCursors, ListLanes
from ackwise.spark.failing import plainly
from ackwise.spark.reach import Reach, kept, reach
from ackwise.spark.source import schemas
from ackwise.spark.source.lease import refuse_table
from ackwise.spark.source.options import SourceOptions
from ackwise.spark.source.packing import Stretch, Work, dealt
from ackwise.spark.source.reading import Batches
from ackwise.spark.types import from_ddl

Offset = dict[str, Any]
Places = dict[int, int]
"""By lane: the first seq that is not read yet."""


class LogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One lives in a process beside the driver as long as the query does; copies of it read on the executors."""

    def __init__(self, options: SourceOptions, asked: StructType) -> None:
        refuse_table(options)
        self._queue, self._options = options.needed_queue, options
        self._schema = schemas.pruned(asked, schemas.full(schemas.STREAM, options))
        self._opened: Reach | None = None
        self._initial: Offset | None = None
        self._frozen: Places | None = None
        self._advanced: Places = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def _reach(self) -> Reach:
        if self._opened is None:
            self._opened = reach(self._options.url, duties=True)
            self._opened.transport.ask(GetQueue(queue=self._queue))
        return self._opened

    def _lanes(self) -> list[LaneRow]:
        found: list[LaneRow] = self._reach.transport.ask(ListLanes(queue=self._queue))
        return found

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = {lane.lane: lane.head for lane in self._lanes()}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.rows_per_trigger)

    @plainly
    def initialOffset(self) -> Offset:
        if self._initial is None:
            self._initial = self._offset(self._first_places())
        return self._initial

    def _first_places(self) -> Places:
        """A group goes on where it stands, also with a new checkpoint; without one `startingPosition` alone decides."""
        group, start = self._options.group, self._options.start
        if group is not None:
            self._reach.transport.send(ConfigureGroup(queue=self._queue, group=group, start=start))
            cursors: list[CursorRow] = self._reach.transport.ask(ListCursors(queue=self._queue, group=group))
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
            page = next(iter(self._reach.shelf.pages([(lane.lane, middle, middle + 1)], ["created_at"])), None)
            if page is None or page.columns["created_at"].cast(pa.int64())[0].as_py() >= instant:
                hi = middle
            else:
                lo = middle + 1
        return lo

    def _offset(self, places: Places) -> Offset:
        return {
            "queue": self._queue,
            "group": self._options.group,
            "lanes": {str(lane): places[lane] for lane in sorted(places)},
        }

    def _places(self, offset: Offset) -> Places:
        if "lanes" not in offset:
            raise Conflict(
                "the checkpoint was written in lease mode; option mode must stay lease, or use a new checkpoint"
            )
        for key, mine in (("queue", self._queue), ("group", self._options.group)):
            if offset.get(key) != mine:
                raise Conflict(f"the checkpoint belongs to {key} {offset.get(key)!r}, and option {key} is {mine!r}")
        return {int(lane): seq for lane, seq in offset["lanes"].items()}

    @plainly
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        places = self._places(start)
        self._advance(places)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        lanes = self._lanes()
        heads = {one.lane: one.head for one in lanes} if self._frozen is None else self._frozen
        begins = {one.lane: places.get(one.lane, one.start) for one in lanes}
        ends = _shared_out({lane: (begins.get(lane, 0), head) for lane, head in heads.items()}, most)
        if all(ends[lane] <= begins.get(lane, 0) for lane in ends):
            return start
        return self._offset({**places, **ends})

    def _advance(self, places: Places) -> None:
        """What Spark has committed is done for the group."""
        moved = {lane: seq for lane, seq in places.items() if seq > self._advanced.get(lane, 0)}
        if self._options.group is not None and moved:
            self._reach.transport.send(AdvanceGroup(queue=self._queue, group=self._options.group, lanes=moved))
        self._advanced |= moved

    @plainly
    def reportLatestOffset(self) -> Offset | None:
        return self._offset({lane.lane: lane.head for lane in self._lanes()})

    @plainly
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        begins, ends = self._places(start), self._places(end)
        stretches = []
        for one in self._lanes():
            lo, hi = begins.get(one.lane, 0), ends.get(one.lane, 0)
            if lo < one.start and lo < hi and one.lane in begins:
                self._lost(one, lo, min(hi, one.start))
            if lo < hi:
                lo = max(lo, one.start)
                stretches.append(
                    Stretch(one.lane, self._queue, one.partition, one.partition_id, one.priority, lo, max(lo, hi))
                )
        return [Work(pile) for pile in dealt(stretches, self._options.partitions, split=True)]

    def _lost(self, lane: LaneRow, lo: int, hi: int) -> None:
        if self._options.fail_on_data_loss:
            raise DataLost(
                f"messages {lo} to {hi - 1} of partition {lane.partition!r} in queue {self._queue!r} were pruned "
                "before this query read them; option failOnDataLoss=false goes on without them"
            )

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Work)
        inside = self._options.payload_schema
        batches = Batches(self._schema, None if inside is None else from_ddl(inside, "option payloadSchema"))
        return batches.read(kept(self._options.url).shelf, partition.stretches, None)

    def commit(self, end: Offset) -> None:
        """Spark says so one batch late and never for the last; `latestOffset` moves the group instead."""

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()


def _shared_out(lanes: dict[int, tuple[int, int]], most: int | None) -> Places:
    """How far to read in each lane: everything, or `most` messages shared out evenly."""
    ends = {lane: hi for lane, (_, hi) in lanes.items()}
    if most is None or sum(max(0, hi - lo) for lo, hi in lanes.values()) <= most:
        return ends
    left = sorted(((max(0, hi - lo), lane) for lane, (lo, hi) in lanes.items()))
    for at, (size, lane) in enumerate(left):
        taken = min(size, most // (len(left) - at))
        ends[lane] = lanes[lane][0] + taken
        most -= taken
    return ends
