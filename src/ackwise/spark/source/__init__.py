"""`format("ackwise")` for reading: queues as streams, by lease or as a log, and tables as batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ackwise.core.errors import AckwiseError
from ackwise.spark.failing import plainly
from ackwise.spark.source import schemas
from ackwise.spark.source.options import parsed

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


@plainly
def schema(given: Mapping[str, str]) -> StructType:
    """The columns of a batch: `table`, or what a stream has when none is named. Spark asks before it says which."""
    options = parsed(given)
    base = schemas.TABLES[options.table] if given.get("table") else schemas.STREAM
    return schemas.full(base, options)


@plainly
def batch_reader(given: Mapping[str, str], asked: StructType) -> DataSourceReader:
    from ackwise.spark.source.tables import reader

    return reader(parsed(given), asked, named="table" in given)


def stream_reader(given: Mapping[str, str], asked: StructType) -> DataSourceStreamReader:
    from ackwise.spark.source.lease import LeaseReader
    from ackwise.spark.source.log import LogReader
    from ackwise.spark.source.refusing import RefusingReader

    try:
        options = parsed(given)
        return LeaseReader(options, asked) if options.mode == "lease" else LogReader(options, asked)
    except AckwiseError as problem:
        return RefusingReader(problem)
