"""Stretches as rows, for tasks that read the messages themselves.

A message that Spark hands on goes from the process that read it through Spark's own to the one that works on it, and is
copied at each border. Whoever works on it in Python anyway is told where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from ackwise.spark.reach import kept
from ackwise.spark.source.packing import Stretch, Work
from ackwise.spark.source.reading import Batches
from ackwise.spark.source.schemas import STRETCHES
from ackwise.spark.types import arrow_schema


def batch(work: Work) -> pa.RecordBatch:
    """What a task has to do as one record batch."""
    lease = work.lease or (None, None)
    cells = [(*msgspec.structs.astuple(one), *lease) for one in work.stretches]
    schema = arrow_schema(STRETCHES)
    columns = zip(*cells, strict=True) if cells else ([] for _ in schema)
    return pa.record_batch(
        [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def read(url: str, places: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """The messages that are there, as record batches of a schema."""
    batches = Batches(schema, None)
    for rows in places:
        for cells in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            yield from _stretch(url, batches, Stretch(*cells[:-2]), cells[-2:])


def _stretch(url: str, batches: Batches, stretch: Stretch, lease: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    """A fork closes this process's connection, also while somebody reads: reading goes on over the next one."""
    while stretch:
        here = kept(url)
        for behind, page in batches.pages(here.shelf, stretch, lease):
            yield page
            stretch = msgspec.structs.replace(stretch, lo=behind)
            if kept(url) is not here:
                break
        else:
            return
