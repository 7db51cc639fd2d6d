"""Sink with `mode=settle`: settles deliveries by the column `outcome`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import DoubleType, FloatType, IntegerType, LongType, StringType, StructType

from ackwise.core import validation
from ackwise.core.errors import BadInput
from ackwise.core.settlement import Outcome, Verdict
from ackwise.spark.bulk_settlement import MOST_ROWS, RowSettlement, Settler
from ackwise.spark.connections import task_connection
from ackwise.spark.sink.push_writer import check_columns

_TEXT = (StringType(),)
_NUMBER = (DoubleType(), FloatType(), IntegerType(), LongType())


class SettleWriter:
    """Settles the rows of one Spark partition."""

    def __init__(self, url: str, schema: StructType) -> None:
        check_columns(
            schema,
            {"delivery_id": _TEXT, "outcome": _TEXT},
            {"delay_seconds": _NUMBER, "error": _TEXT},
            "the settle sink",
        )
        self._url = url

    def run(self, batches: Iterator[pa.RecordBatch]) -> Counter[str]:
        connection = task_connection(self._url)
        settler = Settler(connection.transport)
        counts: Counter[str] = Counter()
        rows: list[RowSettlement] = []
        for batch in batches:
            rows += _rows(batch)
            while len(rows) >= MOST_ROWS:
                counts += settler.settle(rows[:MOST_ROWS])
                del rows[:MOST_ROWS]
        counts += settler.settle(rows)
        connection.finish_task()
        return counts

    def remarks(self, counts: Counter[str]) -> str | None:
        """Warning about rejected settlements. The messages of stale ones are delivered again."""
        why = {Verdict.STALE.value: "their leases had ended", Verdict.UNKNOWN.value: "there is no such delivery"}
        rejected = [f"{counts[verdict]} {verdict} ({cause})" for verdict, cause in why.items() if counts[verdict]]
        return f"refused of {sum(counts.values())} settlements: {', '.join(rejected)}" if rejected else None


def _rows(batch: pa.RecordBatch) -> list[RowSettlement]:
    """Validate all rows of a batch before the first one is settled."""
    count = batch.num_rows
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    nothing = [None] * count
    return [
        RowSettlement(_delivery(delivery_id), _outcome(outcome), _delay(delay), _error(error))
        for delivery_id, outcome, delay, error in zip(
            columns["delivery_id"],
            columns["outcome"],
            columns.get("delay_seconds", nothing),
            columns.get("error", nothing),
            strict=True,
        )
    ]


def _delivery(value: str | None) -> str:
    if value is None:
        raise BadInput("the column 'delivery_id' has a null; read it from a stream in lease mode")
    return value


def _outcome(value: str | None) -> Outcome:
    try:
        return Outcome(str(value))
    except ValueError:
        known = ", ".join(Outcome)
        raise BadInput(f"the column 'outcome' has {value!r:.60}; it takes {known}") from None


def _delay(value: float | None) -> int | None:
    return None if value is None else validation.micros(value, "the column 'delay_seconds'")


def _error(value: str | None) -> str | None:
    return None if value is None else validation.text(value, "error", 8192)
