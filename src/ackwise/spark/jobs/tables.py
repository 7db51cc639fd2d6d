"""Tables of a store as DataFrames, for jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from ackwise.core.queries import GetQueue
from ackwise.spark.connections import absolute, open_connection
from ackwise.spark.source import schemas
from ackwise.wire.timestamps import moment

Row = dict[str, Any]


def table(
    spark: SparkSession,
    url: str,
    name: str,
    *,
    queue: str | None = None,
    group: str | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Read a table of the store or server at `url`. With `columns` it reads only these columns.

    A missing store or queue raises here, not later in a Spark task.
    """
    connection = open_connection(absolute(url), duties=False)
    try:
        if queue is not None:
            connection.transport.ask(GetQueue(queue=queue))
    finally:
        connection.close()
    reader = spark.read.format("ackwise").option("url", absolute(url)).option("table", name)
    for option, value in (("queue", queue), ("group", group)):
        if value is not None:
            reader = reader.option(option, value)
    if columns is not None:
        reader = reader.schema(StructType([schemas.TABLES[name][column] for column in columns]))
    return reader.load()


def collected(frame: DataFrame) -> list[Row]:
    """All rows as dicts. Instants are UTC datetimes. Spark would return them in the machine's timezone."""
    instants = {field.name for field in frame.schema if isinstance(field.dataType, TimestampType)}
    columns = [F.unix_micros(name).alias(name) if name in instants else F.col(name) for name in frame.columns]
    return [
        {name: moment(value) if name in instants and value is not None else value for name, value in row.items()}
        for row in (row.asDict(recursive=True) for row in frame.select(columns).collect())
    ]
