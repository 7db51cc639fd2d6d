"""`mode=settle`: every row settles a delivery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import DoubleType, FloatType, IntegerType, LongType, StringType, StructType

from ackwise.core import limits
from ackwise.core.errors import BadInput
from ackwise.core.settlement import Outcome, Verdict
from ackwise.spark.reach import kept
from ackwise.spark.settling import MOST_ROWS, Row, Settler
from ackwise.spark.sink.columns import checked

_TEXT = (StringType(),)
_NUMBER = (DoubleType(), FloatType(), IntegerType(), LongType())


class Settling:
    def __init__(self, url: str, schema: StructType) -> None:
        checked(
            schema,
            {"delivery_id": _TEXT, "outcome": _TEXT},
            {"delay_seconds": _NUMBER, "error": _TEXT},
            "the settle sink",
        )
        self._url = url

    def run(self, batches: Iterator[pa.RecordBatch]) -> Counter[str]:
        here = kept(self._url)
        settler = Settler(here.transport)
        counts: Counter[str] = Counter()
        rows: list[Row] = []
        for batch in batches:
            rows += _rows(batch)
            while len(rows) >= MOST_ROWS:
                counts += settler.settle(rows[:MOST_ROWS])
                del rows[:MOST_ROWS]
        counts += settler.settle(rows)
        here.finish_task()
        return counts

    def remarks(self, counts: Counter[str]) -> str | None:
        """Rows that came too late are counted and said: their messages will be, or were, delivered again."""
        why = {Verdict.STALE.value: "their leases had ended", Verdict.UNKNOWN.value: "there is no such delivery"}
        told = [f"{counts[verdict]} {verdict} ({cause})" for verdict, cause in why.items() if counts[verdict]]
        return f"refused of {sum(counts.values())} settlements: {', '.join(told)}" if told else None


def _rows(batch: pa.RecordBatch) -> list[Row]:
    """Everything is looked at before anything of the batch is settled."""
    count = batch.num_rows
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    nothing = [None] * count
    return [
        Row(_delivery(delivery_id), _outcome(outcome), _delay(delay), _error(error))
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
    return None if value is None else limits.micros(value, "the column 'delay_seconds'")


def _error(value: str | None) -> str | None:
    return None if value is None else limits.text(value, "error", 8192)
