"""A streaming query as Spark drives it, without Spark: it asks a reader for offsets, writes them down, and reads."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from ackwise.spark.ddl_parser import DdlParser
from ackwise.spark.source.lease_reader import LeaseReader
from ackwise.spark.source.log_reader import LogReader
from ackwise.spark.source.schemas import RANGES
from ackwise.spark.types import arrow_schema
from pyspark_ackwise import DefaultSource

PLACES = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in RANGES.fields)
"""The schema that a query asks for which wants to know only where messages are."""

Offset = dict[str, Any]
Row = dict[str, Any]


def source(url: str | None, options: dict[str, Any]) -> DefaultSource:
    """With these options; None leaves one out."""
    given = {key: str(value) for key, value in {"url": url, **options}.items() if value is not None}
    return DefaultSource(CaseInsensitiveDict(given))


def _schema(made: DefaultSource, asked: str | None) -> StructType:
    return made.schema() if asked is None else DdlParser(asked).columns()


def _rows(batches: Iterable[pa.RecordBatch], schema: StructType) -> list[Row]:
    """As Spark takes them: it compares the schema of the first, and trusts the others."""
    found: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(schema)), batch.schema
        found += batch.to_pylist()
    return found


def _sent(what: Any) -> Any:
    """As it arrives in another process."""
    return pickle.loads(pickle.dumps(what))  # noqa: S301 - our own


class Query:
    """One query. `log` is what Spark keeps in its checkpoint: the offsets of batches, the first where it began.

    Options: `queue="q"` and `group="g"` unless told otherwise.
    """

    def __init__(
        self, url: str, log: list[Offset] | None = None, *, schema: str | None = None, now: bool = False, **options: Any
    ) -> None:
        made = source(url, {"queue": "q", "group": "g", **options})
        self.schema = _schema(made, schema)
        self.reader: LeaseReader | LogReader = made.streamReader(self.schema)  # type: ignore[assignment]
        self.log = [] if log is None else log
        if now:
            self.reader.prepareForTriggerAvailableNow()
        self.limit: ReadLimit = self.reader.getDefaultReadLimit()
        if not self.log:
            self.log.append(self._written(self.reader.initialOffset()))

    @staticmethod
    def _written(offset: Offset) -> Offset:
        """An offset goes to the checkpoint and back."""
        found: Offset = json.loads(json.dumps(offset))
        return found

    def plan(self) -> bool:
        """Whether there is another batch: everything before is done, and its end is in the log now."""
        end = self._written(self.reader.latestOffset(self.log[-1], self.limit))
        if end == self.log[-1]:
            return False
        self.log.append(end)
        return True

    def works(self) -> list[list[Row]]:
        """The rows of the last batch, by task. A batch that was run before is run again."""
        planned = self.reader.partitions(*self.log[-2:])
        reader = _sent(self.reader)
        return [_rows(reader.read(_sent(one)), self.schema) for one in planned]

    def rows(self) -> list[Row]:
        return [row for work in self.works() for row in work]

    def batch(self) -> list[Row]:
        """Plan and read; nothing when there is nothing."""
        return self.rows() if self.plan() else []


def table(url: str, name: str | None, *, schema: str | None = None, **options: Any) -> list[Row]:
    """A table as a batch, by its rows."""
    made = source(url, {**({} if name is None else {"table": name}), **options})
    asked = _schema(made, schema)
    reader: DataSourceReader = made.reader(asked)
    partitions: Sequence[InputPartition | None] = reader.partitions()
    assert isinstance(partitions, list)
    partitions = partitions or [None]
    there = _sent(reader)
    return [row for one in partitions for row in _rows(there.read(_sent(one)), asked)]
