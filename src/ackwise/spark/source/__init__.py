"""Source `format("ackwise")`: queues as streams in lease mode or log mode, and tables as batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ackwise.core.errors import AckwiseError
from ackwise.spark.errors import one_line_errors
from ackwise.spark.source import schemas
from ackwise.spark.source.options import parse_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


@one_line_errors
def schema(given: Mapping[str, str]) -> StructType:
    """Columns of the option `table`, else of a stream. Spark asks for them before it says whether it reads a stream."""
    options = parse_options(given)
    base = schemas.TABLES[options.table] if given.get("table") else schemas.STREAM
    return schemas.full(base, options)


@one_line_errors
def batch_reader(given: Mapping[str, str], wanted: StructType) -> DataSourceReader:
    from ackwise.spark.source.table_readers import reader

    return reader(parse_options(given), wanted, named="table" in given)


def stream_reader(given: Mapping[str, str], wanted: StructType) -> DataSourceStreamReader:
    from ackwise.spark.errors import ErrorReader
    from ackwise.spark.source.lease_reader import LeaseReader
    from ackwise.spark.source.log_reader import LogReader

    try:
        options = parse_options(given)
        return LeaseReader(options, wanted) if options.mode == "lease" else LogReader(options, wanted)
    except AckwiseError as problem:
        return ErrorReader(problem)
