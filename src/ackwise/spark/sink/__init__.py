"""Sink `format("ackwise")`: `mode=push` pushes rows, `mode=settle` settles deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ackwise.core.errors import BadInput
from ackwise.spark.errors import one_line_errors
from ackwise.spark.source.options import check_known, one_of, url_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from ackwise.spark.sink.push_writer import PushWriter
    from ackwise.spark.sink.settle_writer import SettleWriter

_KNOWN = ("url", "queue", "mode", "checkpointLocation", "path")


@one_line_errors
def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    from ackwise.spark.sink.spark_writers import BatchWriter

    if overwrite:
        raise BadInput('a queue cannot be overwritten; use .mode("append")')
    return BatchWriter(_task(given, schema))


@one_line_errors
def stream_writer(given: Mapping[str, str], schema: StructType) -> DataSourceStreamWriter:
    from ackwise.spark.sink.spark_writers import StreamWriter

    return StreamWriter(_task(given, schema))


def _task(given: Mapping[str, str], schema: StructType) -> PushWriter | SettleWriter:
    from ackwise.spark.sink.push_writer import PushWriter
    from ackwise.spark.sink.settle_writer import SettleWriter

    check_known(given, _KNOWN, "ackwise sink")
    if "mode" not in given:
        raise BadInput('option mode is missing: .option("mode", "push") or .option("mode", "settle")')
    url = url_of(given)
    if one_of(given, "mode", ("push", "settle"), "push") == "settle":
        return SettleWriter(url, schema)
    queue = given.get("queue")
    if queue is None:
        raise BadInput('option queue is missing: set the queue to push to, .option("queue", "orders")')
    return PushWriter(url, queue, schema)
