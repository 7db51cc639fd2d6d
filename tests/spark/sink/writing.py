"""A write as Spark does it, without Spark: every task writes batches and answers, and at the end there is a commit."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, WriterCommitMessage

from ackwise.spark.ddl_parser import DdlParser
from ackwise.spark.types import arrow_schema
from pyspark_ackwise import DefaultSource

Row = dict[str, Any]


def _sent(what: Any) -> Any:
    """As it arrives in another process."""
    return pickle.loads(pickle.dumps(what))  # noqa: S301 - our own


class Sink:
    """A sink with these options, for rows of this schema."""

    def __init__(self, schema: str, *, overwrite: bool = False, stream: bool = False, **options: str) -> None:
        self.schema = DdlParser(schema).columns()
        made = DefaultSource(CaseInsensitiveDict(options))
        self.stream = stream
        self.writer: Any = made.streamWriter(self.schema, False) if stream else made.writer(self.schema, overwrite)

    def task(self, *batches: list[Row]) -> WriterCommitMessage:
        """What one task does with its batches."""
        kinds = arrow_schema(self.schema)
        message = _sent(self.writer).write(iter([pa.RecordBatch.from_pylist(rows, kinds) for rows in batches]))
        assert isinstance(message, WriterCommitMessage)
        back: WriterCommitMessage = _sent(message)
        return back

    def commit(self, *messages: WriterCommitMessage | None, batch: int = 0) -> None:
        self.writer.commit(list(messages), *([batch] if self.stream else []))

    def write(self, *batches: list[Row]) -> dict[str, int]:
        """One task and the commit; what became of the rows."""
        message: Any = self.task(*batches)
        self.commit(message)
        return dict(message.counts)
