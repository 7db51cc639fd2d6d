"""`mode=push`: every row is a message. With transaction ids a row that is written again is pushed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from ackwise.core import limits
from ackwise.core.commands import Push
from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION, JSON, NewMessage, PlainBatch
from ackwise.core.native import payloads
from ackwise.spark.reach import kept
from ackwise.spark.sink.columns import checked

MOST_ROWS = 5000
MOST_BYTES = 4 * 1024 * 1024

_TEXT = (StringType(),)
_HEADERS = (MapType(StringType(), StringType()), MapType(StringType(), StringType(), False))


class Pushing:
    def __init__(self, url: str, queue: str, schema: StructType) -> None:
        self._url, self._queue = url, limits.name(queue, "option queue")
        checked(
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
        transport = kept(self._url).transport
        counts: Counter[str] = Counter()
        for batch in batches:
            for command in self._pushes(batch):
                receipts = transport.send(command)
                counts.update(["queued"] * len(receipts) if receipts.run is not None else [r.status for r in receipts])
        return counts

    def remarks(self, counts: Counter[str]) -> str | None:
        return None

    def _pushes(self, batch: pa.RecordBatch) -> Iterator[Push]:
        """Commands of a bounded size. Rows of one partition without options go as columns: nothing is cheaper."""
        columns: dict[str, list[Any]] = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        read = json_of if self._kind == JSON else _bytes
        found = [read(one) for one in columns.pop("payload")]
        places, txids = set(columns.get("partition", [None])), columns.get("transaction_id")
        plain = set(columns) <= {"partition", "transaction_id"} and len(places) == 1 and not (txids and None in txids)
        for lo, hi in _portions(found):
            if plain:
                names = None if txids is None else txids[lo:hi]
                chunk = PlainBatch(found[lo:hi], names, next(iter(places)) or DEFAULT_PARTITION, self._kind)
                yield Push(queue=self._queue, messages=chunk)
            else:
                yield Push(queue=self._queue, messages=[self._message(found[at], columns, at) for at in range(lo, hi)])

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
            delay=0 if delay is None else limits.micros(delay, "the column 'delay_seconds'"),
        )


def json_of(value: str | bytes | None) -> bytes:
    """A payload that is JSON, as it was given."""
    found = _bytes(value)
    if not payloads.are_json([found]):
        raise BadInput(f"the column 'payload' has text that is not JSON: {found[:60]!r}; to_json(...) makes it JSON")
    return found


def _bytes(value: str | bytes | None) -> bytes:
    if value is None:
        raise BadInput("the column 'payload' has a null; to_json(...) makes one")
    return value.encode() if isinstance(value, str) else value


def _portions(found: list[bytes]) -> Iterator[tuple[int, int]]:
    lo, size = 0, 0
    for at, payload in enumerate(found):
        if at > lo and (at - lo == MOST_ROWS or size + len(payload) > MOST_BYTES):
            yield lo, at
            lo, size = at, 0
        size += len(payload)
    if found:
        yield lo, len(found)
