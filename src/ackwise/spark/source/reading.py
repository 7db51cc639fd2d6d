"""What a task does: stretches of lanes become record batches with the columns that were asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from ackwise.columns import texts
from ackwise.columns.pages import STORED, Page, Shelf
from ackwise.spark.source.packing import Stretch
from ackwise.spark.source.schemas import CORRUPT
from ackwise.spark.types import Rows, arrow_schema

ROWS = 2048
"""Rows per record batch: measured to be faster than larger ones."""


class Batches:
    """Makes record batches of a schema. `parsed` are the fields of the payload among its columns."""

    def __init__(self, schema: StructType, payload_schema: StructType | None) -> None:
        self._arrow = arrow_schema(schema)
        self._names = schema.names
        wanted = {name for name in self._names if name in STORED}
        inside = set(payload_schema.names) if payload_schema is not None else set()
        self._parsed = [name for name in self._names if name in inside]
        self._rows = None
        if payload_schema is not None and (self._parsed or CORRUPT in self._names):
            # All fields are looked at, also those that nobody wants: they decide whether the payload fits.
            self._rows, self._fields = Rows(payload_schema), payload_schema.names
            wanted.add("payload")
        self._wanted = sorted(wanted)

    def read(
        self, shelf: Shelf, stretches: Iterable[Stretch], lease: tuple[int, int] | None
    ) -> Iterator[pa.RecordBatch]:
        for stretch in stretches:
            for _, batch in self.pages(shelf, stretch, lease):
                for at in range(0, batch.num_rows, ROWS):
                    yield batch.slice(at, ROWS)

    def pages(
        self, shelf: Shelf, stretch: Stretch, lease: tuple[int, int] | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """A page at a time, each with the seq behind its last."""
        for page in shelf.pages([(stretch.lane, stretch.lo, stretch.hi)], self._wanted):
            yield int(page.seqs[-1]) + 1, self._batch(page, stretch, lease)

    def _batch(self, page: Page, stretch: Stretch, lease: tuple[int, int] | None) -> pa.RecordBatch:
        found = dict(page.columns)
        if self._rows is not None:
            arrays, errors = self._rows.columns(found["payload"].to_pylist())
            found |= {name: arrays[at] for at, name in enumerate(self._fields) if name in self._parsed}
            found[CORRUPT] = errors
        arrays = [found[name] if name in found else self._place(name, page, stretch, lease) for name in self._names]
        return pa.record_batch(
            [_fitting(one, field.type) for one, field in zip(arrays, self._arrow, strict=True)], schema=self._arrow
        )

    def _place(self, name: str, page: Page, stretch: Stretch, lease: tuple[int, int] | None) -> pa.Array:
        """A column that says where a message is and under which lease, not what it is."""
        count = len(page)
        match name:
            case "seq":
                return pa.array(page.seqs, pa.int64())
            case "delivery_id":
                return (
                    pa.nulls(count, pa.string()) if lease is None else texts.delivery_ids(*lease, page.lane, page.seqs)
                )
            case "queue" | "partition" | "partition_id":
                return pa.repeat(pa.scalar(getattr(stretch, name), pa.string()), count)
            case "priority" | "attempt":
                value = getattr(stretch, name)
                return pa.nulls(count, pa.int32()) if value is None else pa.repeat(pa.scalar(value, pa.int32()), count)
            case _:
                return pa.nulls(count, self._arrow.field(name).type)


def _fitting(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
