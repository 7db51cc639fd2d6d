"""Batch readers of the tables `messages`, `dead_letters`, `groups`, `leases` and `ledger`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ackwise.arrow.message_pages import payload_text
from ackwise.client.transport import Transport
from ackwise.core import queries as q
from ackwise.core.rows import DeadLetter
from ackwise.core.validation import MICROS
from ackwise.spark.connections import StoreConnection, task_connection
from ackwise.spark.errors import one_line_errors
from ackwise.spark.source import schemas
from ackwise.spark.source.lane_ranges import BatchBuilder, SourceRange, TaskRanges, assign_ranges
from ackwise.spark.source.options import SourceOptions
from ackwise.spark.types import JsonColumns, arrow_schema

PAGE = 5000

Row = dict[str, Any]


def reader(options: SourceOptions, wanted: StructType, *, named: bool) -> DataSourceReader:
    base = schemas.TABLES[options.table] if named else schemas.STREAM
    schema = schemas.pruned(wanted, schemas.full(base, options))
    if options.queue is not None:
        task_connection(options.url).transport.ask(q.GetQueue(queue=options.queue))
    return MessagesReader(options, schema) if options.table == "messages" else RowsReader(options, schema)


class MessagesReader(DataSourceReader):
    """Reads all messages that the queue holds when Spark plans the query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema, self._queue = options, schema, options.needed_queue

    @one_line_errors
    def partitions(self) -> Sequence[InputPartition]:
        lanes = task_connection(self._options.url).transport.ask(q.ListLanes(queue=self._queue))
        ranges = [
            SourceRange(row.lane, self._queue, row.partition, row.partition_id, row.priority, row.start, row.head)
            for row in lanes
        ]
        return [TaskRanges(part) for part in assign_ranges(ranges, self._options.partitions, split=True)]

    @one_line_errors
    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Spark passes a partition without a value if there are no partitions.
        if not isinstance(partition, TaskRanges):
            return iter(())
        connection = task_connection(self._options.url)
        batches = BatchBuilder(self._schema, schemas.of_payload(self._options))
        if self._options.group is None or "state" not in self._schema.names:
            return batches.read(connection.shelf, partition.ranges, None)
        return self._with_states(connection, batches, partition.ranges)

    def _with_states(
        self, connection: StoreConnection, batches: BatchBuilder, ranges: list[SourceRange]
    ) -> Iterator[pa.RecordBatch]:
        """Add each message's state for the group. The store has no such column, so a query computes it."""
        at = self._schema.names.index("state")
        for lane_range in ranges:
            for lo in range(lane_range.lo, lane_range.hi, PAGE):
                part = msgspec.structs.replace(lane_range, lo=lo, hi=min(lane_range.hi, lo + PAGE))
                states = self._states(connection.transport, part)
                for batch in batches.read(connection.shelf, [part], None):
                    column = [states.pop(0) for _ in range(batch.num_rows)]
                    yield batch.set_column(at, batch.schema.field(at), pa.array(column, pa.string()))

    def _states(self, transport: Transport, lane_range: SourceRange) -> list[str | None]:
        states: list[str | None] = []
        last = lane_range.lo - 1
        while last < lane_range.hi - 1:
            query = q.Browse(
                queue=self._queue,
                partition=lane_range.partition,
                group=self._options.group,
                after=(lane_range.lane, last),
                limit=lane_range.hi - 1 - last,
            )
            rows = transport.ask(query)
            in_range = [row for row in rows if row.message.lane == lane_range.lane and row.message.seq < lane_range.hi]
            states += [row.state for row in in_range]
            # A page also ends at a number of bytes, so one page may not cover the range.
            if len(in_range) < len(rows) or not in_range:
                break
            last = in_range[-1].message.seq
        return states


class RowsReader(DataSourceReader):
    """Reads a small table in one task."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    @one_line_errors
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._batches()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._schema)
        transport = task_connection(self._options.url).transport
        for rows in _ROWS[self._options.table](transport, self._options, schema.names):
            if rows:
                parsed = self._parsed(rows)
                arrays = [
                    parsed[field.name]
                    if field.name in parsed
                    else pa.array([row[field.name] for row in rows], field.type)
                    for field in schema
                ]
                yield pa.record_batch(arrays, schema=schema)

    def _parsed(self, rows: list[Row]) -> dict[str, pa.Array]:
        """Columns parsed from the payloads. Empty without the option `payloadSchema`."""
        fields = schemas.of_payload(self._options)
        if fields is None:
            return {}
        arrays, errors = JsonColumns(fields).columns(row["payload"] for row in rows)
        return {**dict(zip(fields.names, arrays, strict=True)), schemas.CORRUPT: errors}


def _dead_letters(transport: Transport, options: SourceOptions, names: Sequence[str]) -> Iterator[list[Row]]:
    """Dead letters, newest first, in pages: a message that dies or is redriven meanwhile shifts no other message."""
    query = q.ListDead(queue=options.queue, group=options.group, limit=PAGE)
    while True:
        page = transport.ask(query)
        yield [_dead_letter(letter) for letter in page.letters]
        if page.next is None:
            return
        query = msgspec.structs.replace(query, after=page.next)


def _dead_letter(letter: DeadLetter) -> Row:
    text, kind = payload_text(letter.payload, letter.content_type)
    return {
        **msgspec.structs.asdict(letter),
        "consumer_group": letter.group,
        "error_message": letter.error,
        "retry_count": letter.failures,
        "original_created_at": letter.created_at,
        "moved_to_dlq_at": letter.dead_at,
        "payload": text.decode(),
        "headers": list(letter.headers.items()),
        "content_type": kind,
    }


def _groups(transport: Transport, options: SourceOptions, names: Sequence[str]) -> Iterator[list[Row]]:
    # The last consumed message costs one read per partition, so it is read only if the query needs it.
    last = not {"last_consumed_id", "last_consumed_created_at"}.isdisjoint(names)
    places = transport.ask(q.ListPlaces(queue=options.queue, group=options.group, last_done=last))
    yield [
        {
            **msgspec.structs.asdict(place),
            "consumer_group": place.group,
            "last_consumed_id": place.last_done_id,
            "last_consumed_created_at": place.last_done_created_at,
            "last_consumed_at": place.settled_at,
            "total_messages_consumed": place.acked,
            "lag": place.lag,
        }
        for place in places
    ]


def _leases(transport: Transport, options: SourceOptions, names: Sequence[str]) -> Iterator[list[Row]]:
    query = q.ListLeases(queue=options.queue, group=options.group, live_only=False, limit=1_000_000)
    yield _with_group(transport.ask(query))


def _ledger(transport: Transport, options: SourceOptions, names: Sequence[str]) -> Iterator[list[Row]]:
    rows = _with_group(transport.ask(q.ReadLedger(queue=options.queue, group=options.group)))
    for row in rows:
        row["latency"] = [(bound / MICROS, count) for bound, count in row["latency"].items()]
    yield rows


def _with_group(rows: Iterable[Any]) -> list[Row]:
    return [{**msgspec.structs.asdict(row), "consumer_group": row.group} for row in rows]


_ROWS: dict[str, Callable[[Transport, SourceOptions, Sequence[str]], Iterator[list[Row]]]] = {
    "dead_letters": _dead_letters,
    "groups": _groups,
    "leases": _leases,
    "ledger": _ledger,
}
