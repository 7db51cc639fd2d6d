"""`.transform` on executors: settles records with their output rows, and rejects rows that break an expectation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import groupby
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ackwise.core import validation
from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION, NewMessage
from ackwise.core.settlement import Outcome
from ackwise.spark.bulk_settlement import MOST_BUNDLES, RowSettlement, Settler, unpushable
from ackwise.spark.connections import task_connection
from ackwise.spark.errors import marked_errors
from ackwise.spark.pipelines.map_task import count_batch, derived_id
from ackwise.spark.sink.push_writer import json_of


def place_of(delivery_id: str) -> str:
    """Lane and seq in a delivery id: the same for every attempt of a message."""
    return delivery_id.partition(".")[2]


class BundleTask(msgspec.Struct, frozen=True):
    """Task that acks each delivery with its outputs. The rows of one delivery must be next to each other."""

    url: str
    group: str
    produce: str

    def settle(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with marked_errors():
            connection = task_connection(self.url)
            settler = Settler(connection.transport, self.produce)
            counts: Counter[str] = Counter()
            chunk: list[RowSettlement] = []
            for row in self._bundles(batches):
                chunk.append(row)
                if len(chunk) == MOST_BUNDLES:
                    counts += settler.settle(chunk)
                    chunk = []
            counts += settler.settle(chunk)
            connection.finish_task()
        yield count_batch(counts)

    def _bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[RowSettlement]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for delivery_id, bundle in groupby(rows, key=lambda row: row["delivery_id"]):
            if delivery_id is None:
                raise BadInput("the column 'delivery_id' has a null; produce needs it to find the record of each row")
            yield self._bundle(delivery_id, list(bundle))

    def _bundle(self, delivery_id: str, rows: list[dict[str, Any]]) -> RowSettlement:
        try:
            return RowSettlement(delivery_id, outputs=[self._message(row, at) for at, row in enumerate(rows)])
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
            delay=0 if delay is None else validation.micros(delay, "the column 'delay_seconds'"),
        )


class RejectTask(msgspec.Struct, frozen=True):
    """Task that dead-letters the deliveries of rows `(delivery_id, reason, undecodable)`."""

    url: str

    def settle(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with marked_errors():
            connection = task_connection(self.url)
            settler = Settler(connection.transport)
            counts: Counter[str] = Counter()
            for batch in batches:
                columns = (batch.column(name).to_pylist() for name in ("delivery_id", "reason", "undecodable"))
                counts += settler.settle([_rejected(*row) for row in zip(*columns, strict=True)])
            connection.finish_task()
        yield count_batch(counts)


def _rejected(delivery_id: str, reason: str, undecodable: bool) -> RowSettlement:
    return RowSettlement(
        delivery_id, Outcome.REJECT, None, reason, "DecodeError" if undecodable else "Expectation", undecodable
    )


_rejects: ContextVar[list[DataFrame] | None] = ContextVar("ackwise_broken", default=None)


def expect(condition: str | Column, reason: str) -> Callable[[DataFrame], DataFrame]:
    """Make a step for `.transform(...)` that rejects rows. It also works inside a function, with `df.transform(...)`::

        .transform(expect("amount > 0", "the amount is not positive"))

    A row for which the condition is not true (false or null) is rejected with the reason.
    """
    if not reason:
        raise BadInput("expect(condition, reason): the reason must be a text that says what is wrong")
    if not isinstance(condition, str | Column):
        raise BadInput("expect(condition, reason): the condition must be SQL or a column")

    def step(frame: DataFrame) -> DataFrame:
        collected = _rejects.get()
        if collected is None:
            raise BadInput("expect(...) works inside a pipeline's .transform(...)")
        if "delivery_id" not in frame.columns:
            raise BadInput(f"expect({reason!r:.60}) needs the column delivery_id; put it before the step that drops it")
        holds = f.coalesce(f.expr(condition) if isinstance(condition, str) else condition, f.lit(False))
        columns = f.lit(reason).alias("reason"), f.lit(False).alias("undecodable")
        collected.append(frame.filter(~holds).select("delivery_id", *columns))
        return frame.filter(holds)

    return step


@contextmanager
def collect_rejects() -> Iterator[list[DataFrame]]:
    """Collect the rows that `expect` rejects inside, as frames `(delivery_id, reason, undecodable)`."""
    rejects: list[DataFrame] = []
    token = _rejects.set(rejects)
    try:
        yield rejects
    finally:
        _rejects.reset(token)
