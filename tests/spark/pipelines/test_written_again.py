"""A batch that is run again after it was written: nothing is left out of the files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from ackwise.spark import pipeline
from ackwise.spark.pipelines import batches
from ackwise.spark.pipelines.batches import Batches
from ackwise.spark.source import stretches
from ackwise.spark.source.schemas import STREAM, STRETCHES
from ackwise.spark.types import arrow_schema
from tests.spark.source.asking import PLACES, Query
from tests.spark.stores import Desk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = StructType([STREAM[name] for name in ("delivery_id", "payload")])


class Killed(BaseException):
    """The driver, between writing and settling."""


def killed(*_: Any) -> None:
    raise Killed


def test_what_failed_the_first_time_and_not_the_second(
    spark: SparkSession, local_desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has only what was not settled when it is run again, and some of that was not in the files either."""
    local_desk.number(10)
    away = tmp_path / "away"
    away.touch()

    def fetches(order: dict[str, Any]) -> dict[str, int]:
        if order["n"] in (3, 7) and away.exists():
            raise OSError("the other side is away")
        if order["n"] == 7:
            raise ValueError("and never will be there")
        return {"n": order["n"]}

    steps = pipeline(spark, local_desk.url).consume("q", "g").map(fetches, returns="n long")
    work = Batches(steps.write("parquet", str(tmp_path / "files"))._plan, local_desk.transport, "me")

    def run(query: Query) -> None:
        work.work(spark.createDataFrame(query.rows(), STRETCHES), 0)

    def written() -> list[int]:
        return sorted(row["n"] for row in spark.read.parquet(str(tmp_path / "files")).collect())

    query = Query(local_desk.url, schema=PLACES)
    try:
        assert query.plan()
        with monkeypatch.context() as patched:
            patched.setattr(batches, "_counted", killed)
            with pytest.raises(Killed):
                run(query)
        assert written() == [0, 1, 2, 4, 5, 6, 8, 9]
        places = [pa.RecordBatch.from_pylist(query.rows(), arrow_schema(STRETCHES))]
        rows = [row for batch in stretches.read(local_desk.url, places, COLUMNS) for row in batch.to_pylist()]
        local_desk.settle([row for row in rows if row["payload"] in ('{"n":0}', '{"n":1}')])
        away.unlink()
        for _ in range(2):
            run(query)
        assert written() == [0, 1, 2, 3, 4, 5, 6, 8, 9]
        assert local_desk.counts() == {"acked": 9, "held": 1}
    finally:
        query.reader.stop()
