"""`.transform(fn)` on the executors: the rows that came out of a DataFrame, bundled by the delivery they came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec
import pyarrow as pa

from ackwise.core import limits
from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION, NewMessage
from ackwise.core.settlement import Outcome
from ackwise.spark.failing import ours
from ackwise.spark.pipelines.mapping import count_batch, derived_id
from ackwise.spark.reach import kept
from ackwise.spark.settling import MOST_BUNDLES, Row, Settler, unpushable
from ackwise.spark.sink.pushing import json_of


def place_of(delivery_id: str) -> str:
    """The message behind a delivery: its lane and seq, the same at every attempt."""
    return delivery_id.partition(".")[2]


class BundleTask(msgspec.Struct, frozen=True):
    """Rows of one delivery stand next to each other. They are its outputs, and it is acked with them."""

    url: str
    group: str
    produce: str

    def settle(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ours():
            here = kept(self.url)
            settler = Settler(here.transport, self.produce)
            counts: Counter[str] = Counter()
            chunk: list[Row] = []
            for row in self._bundles(batches):
                chunk.append(row)
                if len(chunk) == MOST_BUNDLES:
                    counts += settler.settle(chunk)
                    chunk = []
            counts += settler.settle(chunk)
            here.finish_task()
        yield count_batch(counts)

    def _bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for delivery_id, found in groupby(rows, key=lambda row: row["delivery_id"]):
            if delivery_id is None:
                raise BadInput("the column 'delivery_id' has a null; produce must know whose output each row is")
            yield self._bundle(delivery_id, list(found))

    def _bundle(self, delivery_id: str, rows: list[dict[str, Any]]) -> Row:
        try:
            return Row(delivery_id, outputs=[self._message(row, at) for at, row in enumerate(rows)])
        except BadInput as problem:
            return unpushable(delivery_id, problem)

    def _message(self, row: dict[str, Any], at: int) -> NewMessage:
        headers, delay = row.get("headers"), row.get("delay_seconds")
        return NewMessage(
            json_of(row["payload"]),
            row.get("partition") or DEFAULT_PARTITION,
            row.get("priority") or 0,
            derived_id(self.group, place_of(row["delivery_id"]), at),
            None if headers is None else dict(headers),
            delay=0 if delay is None else limits.micros(delay, "the column 'delay_seconds'"),
        )


class RejectTask(msgspec.Struct, frozen=True):
    """Rows (delivery_id, reason, undecodable): those deliveries are dead letters."""

    url: str

    def settle(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ours():
            here = kept(self.url)
            settler = Settler(here.transport)
            counts: Counter[str] = Counter()
            for batch in batches:
                columns = (batch.column(name).to_pylist() for name in ("delivery_id", "reason", "undecodable"))
                counts += settler.settle([_rejected(*row) for row in zip(*columns, strict=True)])
            here.finish_task()
        yield count_batch(counts)


def _rejected(delivery_id: str, reason: str, undecodable: bool) -> Row:
    return Row(delivery_id, Outcome.REJECT, None, reason, "DecodeError" if undecodable else "Expectation", undecodable)
