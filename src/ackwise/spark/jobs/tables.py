"""What jobs read, and their rows as plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from ackwise.client.moments import moment
from ackwise.core.queries import GetQueue
from ackwise.spark.reach import absolute, reach
from ackwise.spark.source import schemas

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
    """A table of the store or server at `url`; only `columns` of it are read, where they are named.

    What is not there is refused here, not in one of Spark's tasks.
    """
    here = reach(absolute(url), duties=False)
    try:
        if queue is not None:
            here.transport.ask(GetQueue(queue=queue))
    finally:
        here.close()
    reader = spark.read.format("ackwise").option("url", absolute(url)).option("table", name)
    for option, value in (("queue", queue), ("group", group)):
        if value is not None:
            reader = reader.option(option, value)
    if columns is not None:
        reader = reader.schema(StructType([schemas.TABLES[name][column] for column in columns]))
    return reader.load()


def collected(frame: DataFrame) -> list[Row]:
    """Every row. Spark hands out instants in the machine's own timezone; here they are in UTC and say so."""
    instants = {field.name for field in frame.schema if isinstance(field.dataType, TimestampType)}
    columns = [F.unix_micros(name).alias(name) if name in instants else F.col(name) for name in frame.columns]
    return [
        {name: moment(value) if name in instants and value is not None else value for name, value in row.items()}
        for row in (row.asDict(recursive=True) for row in frame.select(columns).collect())
    ]
