"""Sink with `mode=push`: pushes rows as messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from ackwise.core import validation
from ackwise.core.commands import Push
from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION, JSON, NewMessage, PlainBatch
from ackwise.core.policy import NEW_QUEUE_POLICY
from ackwise.spark.connections import task_connection
from ackwise.wire import payloads

MOST_ROWS = 5000
MOST_BYTES = 4 * 1024 * 1024

_TEXT = (StringType(),)
_HEADERS = (MapType(StringType(), StringType()), MapType(StringType(), StringType(), False))


class PushWriter:
    """Pushes the rows of one Spark partition."""

    def __init__(self, url: str, queue: str, schema: StructType) -> None:
        self._url, self._queue = url, validation.name(queue, "option queue")
        check_columns(
            schema,
            {"payload": (StringType(), BinaryType())},
            {
                "partition": _TEXT,
                "priority": (IntegerType(), LongType(), ShortType()),
                "transaction_id": _TEXT,
                "headers": _HEADERS,
                "delay_seconds": (DoubleType(), FloatType(), IntegerType(), LongType()),
            },
            "the push sink",
        )
        self._kind = payloads.BYTES if isinstance(schema["payload"].dataType, BinaryType) else JSON

    def run(self, batches: Iterator[pa.RecordBatch]) -> Counter[str]:
        transport = task_connection(self._url).transport
        counts: Counter[str] = Counter()
        for batch in batches:
            for command in self._pushes(batch):
                receipts = transport.send(command)
                counts.update(["queued"] * len(receipts) if receipts.run is not None else [r.status for r in receipts])
        return counts

    def remarks(self, counts: Counter[str]) -> str | None:
        return None

    def _pushes(self, batch: pa.RecordBatch) -> Iterator[Push]:
        """Push commands of bounded size. Rows of one partition without options go as columns, which is fastest."""
        columns: dict[str, list[Any]] = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        read = json_of if self._kind == JSON else _bytes
        bodies = [read(value) for value in columns.pop("payload")]
        partitions, txids = set(columns.get("partition", [None])), columns.get("transaction_id")
        plain = (
            set(columns) <= {"partition", "transaction_id"} and len(partitions) == 1 and not (txids and None in txids)
        )
        for lo, hi in _portions(bodies):
            messages: PlainBatch | list[NewMessage]
            if plain:
                names = None if txids is None else txids[lo:hi]
                messages = PlainBatch(bodies[lo:hi], names, next(iter(partitions)) or DEFAULT_PARTITION, self._kind)
            else:
                messages = self._messages(bodies, columns, lo, hi)
            yield Push(queue=self._queue, messages=messages, create=NEW_QUEUE_POLICY)

    def _messages(self, bodies: list[bytes], columns: dict[str, list[Any]], lo: int, hi: int) -> list[NewMessage]:
        return [self._message(bodies[at], columns, at) for at in range(lo, hi)]

    def _message(self, payload: bytes, columns: dict[str, list[Any]], at: int) -> NewMessage:
        row = {name: column[at] for name, column in columns.items()}
        headers, delay = row.get("headers"), row.get("delay_seconds")
        return NewMessage(
            payload,
            partition=row.get("partition") or DEFAULT_PARTITION,
            priority=row.get("priority") or 0,
            transaction_id=row.get("transaction_id"),
            headers=None if headers is None else dict(headers),
            content_type=self._kind,
            delay=0 if delay is None else validation.micros(delay, "the column 'delay_seconds'"),
        )


def json_of(value: str | bytes | None) -> bytes:
    """Bytes of a JSON payload. Raises `BadInput` for other text."""
    body = _bytes(value)
    if not payloads.are_json([body]):
        raise BadInput(f"the column 'payload' has text that is not JSON: {body[:60]!r}; to_json(...) makes it JSON")
    return body


def _bytes(value: str | bytes | None) -> bytes:
    if value is None:
        raise BadInput("the column 'payload' has a null; use to_json(...), which writes it as JSON")
    return value.encode() if isinstance(value, str) else value


def _portions(bodies: list[bytes]) -> Iterator[tuple[int, int]]:
    lo, size = 0, 0
    for at, payload in enumerate(bodies):
        if at > lo and (at - lo == MOST_ROWS or size + len(payload) > MOST_BYTES):
            yield lo, at
            lo, size = at, 0
        size += len(payload)
    if bodies:
        yield lo, len(bodies)


Kinds = tuple[DataType, ...]


def check_columns(
    schema: StructType, needed: Mapping[str, Kinds], optional: Mapping[str, Kinds], where: str
) -> list[str]:
    """Check the columns and their types. Returns their names."""
    for field in schema.fields:
        kinds = needed.get(field.name) or optional.get(field.name)
        if kinds is None:
            known = ", ".join((*needed, *optional))
            raise BadInput(f"{where} does not know the column {field.name!r}; it takes {known}")
        if field.dataType not in kinds:
            expected = " or ".join(kind.simpleString() for kind in kinds)
            raise BadInput(
                f"{where}: the column {field.name!r} must be {expected}, not {field.dataType.simpleString()}"
            )
    for name in needed:
        if name not in schema.names:
            raise BadInput(f"{where} needs a column {name!r}; there are {', '.join(schema.names) or 'none'}")
    return list(schema.names)
