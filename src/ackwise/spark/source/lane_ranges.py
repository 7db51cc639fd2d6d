"""Lane ranges for Spark's tasks: assigns them to tasks, encodes them as rows, reads their messages as Arrow.

Spark copies each row between processes several times. A task in Python therefore gets lane ranges and reads the
messages from the store itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from operator import attrgetter, itemgetter

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ackwise.arrow import text_columns
from ackwise.arrow.message_pages import STORED, MessagePage, PageReader
from ackwise.core.ids import LaneId
from ackwise.core.lane_range import LaneRange
from ackwise.spark.connections import task_connection
from ackwise.spark.source.schemas import CORRUPT, RANGES
from ackwise.spark.types import JsonColumns, arrow_schema


class SourceRange(msgspec.Struct, frozen=True):
    """Messages [lo, hi) of one lane, with the column values that they share."""

    lane: int
    queue: str
    partition: str
    partition_id: str
    priority: int
    lo: int
    hi: int
    attempt: int | None = None

    def __len__(self) -> int:
        return self.hi - self.lo


class TaskRanges(InputPartition):
    """Ranges that one task reads. `lease` is the number and tag of the lease that holds them, None without a lease."""

    def __init__(self, ranges: list[SourceRange], lease: tuple[int, int] | None = None) -> None:
        self.ranges, self.lease = ranges, lease


def assign_ranges(ranges: Iterable[SourceRange], tasks: int, *, split: bool) -> list[list[SourceRange]]:
    """Deal ranges to at most `tasks` tasks, about the same number of messages to each.

    With `split` a range may be cut between tasks. Without it a lane goes to one task, which keeps its order.
    An empty task still costs tens of milliseconds, so no task is empty.
    """
    filled = [lane_range for lane_range in ranges if len(lane_range)]
    total = sum(map(len, filled))
    if not total:
        return []
    share = -(-total // tasks)
    lanes: dict[tuple[int, int], list[SourceRange]] = {}
    for at, lane_range in enumerate(_cut(filled, share) if split else filled):
        lanes.setdefault((lane_range.lane, at if split else 0), []).append(lane_range)
    shares: list[tuple[int, int, list[SourceRange]]] = [(0, number, []) for number in range(tasks)]
    for group in sorted(lanes.values(), key=lambda group: -sum(map(len, group))):
        size, number, assigned = heapq.heappop(shares)
        heapq.heappush(shares, (size + sum(map(len, group)), number, assigned + group))
    shares.sort(key=itemgetter(1))
    return [sorted(assigned, key=attrgetter("lane", "lo")) for _, _, assigned in shares if assigned]


def _cut(ranges: list[SourceRange], share: int) -> Iterable[SourceRange]:
    for lane_range in ranges:
        for lo in range(lane_range.lo, lane_range.hi, share):
            yield msgspec.structs.replace(lane_range, lo=lo, hi=min(lane_range.hi, lo + share))


def encode(task: TaskRanges) -> pa.RecordBatch:
    """The ranges of a task as one record batch with the columns `RANGES`."""
    lease = task.lease or (None, None)
    cells = [(*msgspec.structs.astuple(lane_range), *lease) for lane_range in task.ranges]
    schema = arrow_schema(RANGES)
    columns = zip(*cells, strict=True) if cells else ([] for _ in schema)
    return pa.record_batch(
        [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def read(url: str, encoded: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Read the messages of encoded ranges as record batches of a schema."""
    batches = BatchBuilder(schema, None)
    for rows in encoded:
        for cells in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            yield from _read_range(url, batches, SourceRange(*cells[:-2]), cells[-2:])


def _read_range(
    url: str, batches: BatchBuilder, lane_range: SourceRange, lease: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    """Read one range. After a fork has closed this process's connection, it continues over the next connection."""
    while lane_range:
        connection = task_connection(url)
        for next_seq, page in batches.pages(connection.shelf, lane_range, lease):
            yield page
            lane_range = msgspec.structs.replace(lane_range, lo=next_seq)
            if task_connection(url) is not connection:
                break
        else:
            return


ROWS = 2048
"""Rows per record batch. Larger batches were measured to be slower."""


class BatchBuilder:
    """Makes record batches of `schema` from stored messages. With `payload_schema` it parses payloads."""

    def __init__(self, schema: StructType, payload_schema: StructType | None) -> None:
        self._arrow = arrow_schema(schema)
        self._names = schema.names
        wanted = {name for name in self._names if name in STORED}
        fields = set(payload_schema.names) if payload_schema is not None else set()
        self._parsed = [name for name in self._names if name in fields]
        self._decoder = None
        if payload_schema is not None and (self._parsed or CORRUPT in self._names):
            # The query may leave out some fields. All of them still decide whether a payload fits.
            self._decoder, self._fields = JsonColumns(payload_schema), payload_schema.names
            wanted.add("payload")
        self._wanted = sorted(wanted)

    def read(
        self, shelf: PageReader, ranges: Iterable[SourceRange], lease: tuple[int, int] | None
    ) -> Iterator[pa.RecordBatch]:
        for lane_range in ranges:
            for _, batch in self.pages(shelf, lane_range, lease):
                for at in range(0, batch.num_rows, ROWS):
                    yield batch.slice(at, ROWS)

    def pages(
        self, shelf: PageReader, lane_range: SourceRange, lease: tuple[int, int] | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Pages of a range, each with the seq after its last message."""
        for page in shelf.pages([LaneRange(LaneId(lane_range.lane), lane_range.lo, lane_range.hi)], self._wanted):
            yield int(page.seqs[-1]) + 1, self._batch(page, lane_range, lease)

    def _batch(self, page: MessagePage, lane_range: SourceRange, lease: tuple[int, int] | None) -> pa.RecordBatch:
        columns = dict(page.columns)
        if self._decoder is not None:
            arrays, errors = self._decoder.columns(columns["payload"].to_pylist())
            columns |= {name: arrays[at] for at, name in enumerate(self._fields) if name in self._parsed}
            columns[CORRUPT] = errors
        arrays = [
            columns[name] if name in columns else self._range_column(name, page, lane_range, lease)
            for name in self._names
        ]
        return pa.record_batch(
            [_cast(array, field.type) for array, field in zip(arrays, self._arrow, strict=True)], schema=self._arrow
        )

    def _range_column(
        self, name: str, page: MessagePage, lane_range: SourceRange, lease: tuple[int, int] | None
    ) -> pa.Array:
        """Column that comes from the range and its lease instead of the messages."""
        count = len(page)
        match name:
            case "seq":
                return pa.array(page.seqs, pa.int64())
            case "delivery_id":
                return (
                    pa.nulls(count, pa.string())
                    if lease is None
                    else text_columns.delivery_ids(*lease, page.lane, page.seqs)
                )
            case "queue" | "partition" | "partition_id":
                return pa.repeat(pa.scalar(getattr(lane_range, name), pa.string()), count)
            case "priority" | "attempt":
                value = getattr(lane_range, name)
                return pa.nulls(count, pa.int32()) if value is None else pa.repeat(pa.scalar(value, pa.int32()), count)
            case _:
                return pa.nulls(count, self._arrow.field(name).type)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
