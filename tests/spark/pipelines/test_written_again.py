"""A batch that is run again after it was written: nothing is left out of the files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from ackwise.spark import pipeline
from ackwise.spark.pipelines import batch_driver
from ackwise.spark.pipelines.batch_driver import BatchDriver
from ackwise.spark.source import lane_ranges
from ackwise.spark.source.schemas import RANGES, STREAM
from ackwise.spark.types import arrow_schema
from tests.spark.queue_harness import QueueHarness
from tests.spark.source.asking import PLACES, Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = StructType([STREAM[name] for name in ("delivery_id", "payload")])


class Killed(BaseException):
    """The driver, between writing and settling."""


def killed(*_: Any) -> None:
    raise Killed


def test_failed_rows_that_succeed_on_rerun_are_written(
    spark: SparkSession, local_harness: QueueHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has only what was not settled when it is run again, and some of that was not in the files either."""
    local_harness.number(10)
    away = tmp_path / "away"
    away.touch()

    def fetches(order: dict[str, Any]) -> dict[str, int]:
        if order["n"] in (3, 7) and away.exists():
            raise OSError("the other side is away")
        if order["n"] == 7:
            raise ValueError("and never will be there")
        return {"n": order["n"]}

    steps = pipeline(spark, local_harness.url).consume("q", "g").map(fetches, returns="n long")
    work = BatchDriver(steps.write("parquet", str(tmp_path / "files"))._plan, local_harness.transport, "me")

    def run(query: Query) -> None:
        work.work(spark.createDataFrame(query.rows(), RANGES), 0)

    def written() -> list[int]:
        return sorted(row["n"] for row in spark.read.parquet(str(tmp_path / "files")).collect())

    query = Query(local_harness.url, schema=PLACES)
    try:
        assert query.plan()
        with monkeypatch.context() as patched:
            patched.setattr(batch_driver, "_run_task", killed)
            with pytest.raises(Killed):
                run(query)
        assert written() == [0, 1, 2, 4, 5, 6, 8, 9]
        places = [pa.RecordBatch.from_pylist(query.rows(), arrow_schema(RANGES))]
        rows = [row for batch in lane_ranges.read(local_harness.url, places, COLUMNS) for row in batch.to_pylist()]
        local_harness.settle([row for row in rows if row["payload"] in ('{"n":0}', '{"n":1}')])
        away.unlink()
        for _ in range(2):
            run(query)
        assert written() == [0, 1, 2, 3, 4, 5, 6, 8, 9]
        assert local_harness.counts() == {"acked": 9, "held": 1}
    finally:
        query.reader.stop()
