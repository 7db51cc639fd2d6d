"""DataFrames with the columns of the source's tables, and rows out of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ackwise.spark.source.schemas import TABLES

Row = dict[str, Any]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def frame(spark: SparkSession, table: str, rows: list[Row]) -> DataFrame:
    """What a row does not say is null."""
    schema = TABLES[table]
    return spark.createDataFrame([[row.get(name) for name in schema.names] for row in rows], schema)
