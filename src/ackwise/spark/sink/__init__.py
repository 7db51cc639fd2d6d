"""`format("ackwise")` for writing: `mode=push` and `mode=settle`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ackwise.core.errors import BadInput
from ackwise.spark.failing import plainly
from ackwise.spark.source.options import check_known, one_of, url_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from ackwise.spark.sink.pushing import Pushing
    from ackwise.spark.sink.settling import Settling

_KNOWN = ("url", "queue", "mode", "checkpointLocation", "path")


@plainly
def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    from ackwise.spark.sink.writers import BatchWriter

    if overwrite:
        raise BadInput('a queue is not overwritten: use .mode("append")')
    return BatchWriter(_task(given, schema))


@plainly
def stream_writer(given: Mapping[str, str], schema: StructType) -> DataSourceStreamWriter:
    from ackwise.spark.sink.writers import StreamWriter

    return StreamWriter(_task(given, schema))


def _task(given: Mapping[str, str], schema: StructType) -> Pushing | Settling:
    from ackwise.spark.sink.pushing import Pushing
    from ackwise.spark.sink.settling import Settling

    check_known(given, _KNOWN, "ackwise sink")
    if "mode" not in given:
        raise BadInput('option mode is missing: .option("mode", "push") or .option("mode", "settle")')
    url = url_of(given)
    if one_of(given, "mode", ("push", "settle"), "push") == "settle":
        return Settling(url, schema)
    queue = given.get("queue")
    if queue is None:
        raise BadInput('option queue is missing: where to push, as in .option("queue", "orders")')
    return Pushing(url, queue, schema)
