"""Registers `format("ackwise")`: Spark searches packages named `pyspark_*` for a `DefaultSource`.

Spark imports this package at the first `load` or `save` of any session, so its methods import the heavy modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Data source `ackwise`: queues as streams, tables as batches, sinks that push and settle."""

    @classmethod
    def name(cls) -> str:
        return "ackwise"

    def schema(self) -> StructType:
        from ackwise.spark.source import schema

        return schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from ackwise.spark.source import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from ackwise.spark.source import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ackwise.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ackwise.spark.sink import stream_writer

        return stream_writer(self.options, schema)
