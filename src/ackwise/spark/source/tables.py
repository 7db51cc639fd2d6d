"""Tables as batches: messages from where they are stored, the rest asked for in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ackwise.client.transport import Transport
from ackwise.columns.pages import shown
from ackwise.core import queries as q
from ackwise.core.limits import MICROS
from ackwise.spark.failing import plainly
from ackwise.spark.reach import Reach, kept
from ackwise.spark.source import schemas
from ackwise.spark.source.options import SourceOptions
from ackwise.spark.source.packing import Stretch, Work, dealt
from ackwise.spark.source.reading import Batches
from ackwise.spark.types import Rows, arrow_schema, from_ddl

PAGE = 5000

Row = dict[str, Any]


def reader(options: SourceOptions, asked: StructType, *, named: bool) -> DataSourceReader:
    base = schemas.TABLES[options.table] if named else schemas.STREAM
    schema = schemas.pruned(asked, schemas.full(base, options))
    if options.queue is not None:
        kept(options.url).transport.ask(q.GetQueue(queue=options.queue))
    return MessagesReader(options, schema) if options.table == "messages" else RowsReader(options, schema)


class MessagesReader(DataSourceReader):
    """All messages that a queue holds at the moment the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema, self._queue = options, schema, options.needed_queue

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        lanes: list[q.LaneRow] = kept(self._options.url).transport.ask(q.ListLanes(queue=self._queue))
        stretches = [
            Stretch(one.lane, self._queue, one.partition, one.partition_id, one.priority, one.start, one.head)
            for one in lanes
        ]
        return [Work(pile) for pile in dealt(stretches, self._options.partitions, split=True)]

    @plainly
    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Spark puts a partition without a value where there is none.
        if not isinstance(partition, Work):
            return iter(())
        here, inside = kept(self._options.url), self._options.payload_schema
        batches = Batches(self._schema, None if inside is None else from_ddl(inside, "option payloadSchema"))
        if self._options.group is None or "state" not in self._schema.names:
            return batches.read(here.shelf, partition.stretches, None)
        return self._with_states(here, batches, partition.stretches)

    def _with_states(self, here: Reach, batches: Batches, stretches: list[Stretch]) -> Iterator[pa.RecordBatch]:
        """How each message stands for the group is asked for beside it: nobody writes it down per message."""
        at = self._schema.names.index("state")
        for stretch in stretches:
            for lo in range(stretch.lo, stretch.hi, PAGE):
                part = msgspec.structs.replace(stretch, lo=lo, hi=min(stretch.hi, lo + PAGE))
                states = self._states(here.transport, part)
                for batch in batches.read(here.shelf, [part], None):
                    found = [states.pop(0) for _ in range(batch.num_rows)]
                    yield batch.set_column(at, batch.schema.field(at), pa.array(found, pa.string()))

    def _states(self, transport: Transport, stretch: Stretch) -> list[str | None]:
        states: list[str | None] = []
        last = stretch.lo - 1
        while last < stretch.hi - 1:
            query = q.Browse(
                queue=self._queue,
                partition=stretch.partition,
                group=self._options.group,
                after=(stretch.lane, last),
                limit=stretch.hi - 1 - last,
            )
            rows: list[q.BrowsedMessage] = transport.ask(query)
            inside = [row for row in rows if row.message.lane == stretch.lane and row.message.seq < stretch.hi]
            states += [row.state for row in inside]
            # Pages end at a number of bytes as well.
            if len(inside) < len(rows) or not inside:
                break
            last = inside[-1].message.seq
        return states


class RowsReader(DataSourceReader):
    """A small table, read by one task."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._batches()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._schema)
        for rows in _ROWS[self._options.table](kept(self._options.url).transport, self._options, schema.names):
            if rows:
                inside = self._inside(rows)
                arrays = [
                    inside[field.name]
                    if field.name in inside
                    else pa.array([row[field.name] for row in rows], field.type)
                    for field in schema
                ]
                yield pa.record_batch(arrays, schema=schema)

    def _inside(self, rows: list[Row]) -> dict[str, pa.Array]:
        """The columns of the payloads, where they were asked for."""
        if self._options.payload_schema is None:
            return {}
        fields = from_ddl(self._options.payload_schema, "option payloadSchema")
        arrays, errors = Rows(fields).columns(row["payload"] for row in rows)
        return {**dict(zip(fields.names, arrays, strict=True)), schemas.CORRUPT: errors}


def _dead_letters(transport: Transport, options: SourceOptions, names: Sequence[str]) -> Iterator[list[Row]]:
    """Dead letters, newest first, in pages: a message that dies or is redriven meanwhile shifts no other message."""
    query = q.ListDead(queue=options.queue, group=options.group, limit=PAGE)
    while True:
        page: q.DeadPage = transport.ask(query)
        yield [_dead_letter(letter) for letter in page.letters]
        if page.next is None:
            return
        query = msgspec.structs.replace(query, after=page.next)


def _dead_letter(letter: q.DeadLetter) -> Row:
    text, kind = shown(letter.payload, letter.content_type)
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
    # Who was last costs a look at a message for each place.
    last = not {"last_consumed_id", "last_consumed_created_at"}.isdisjoint(names)
    places: list[q.Place] = transport.ask(q.ListPlaces(queue=options.queue, group=options.group, last_done=last))
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
