"""What a driver leaves behind that was killed at its very first batch, and who takes it over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from ackwise.core.errors import ClaimConflict
from ackwise.spark import pipeline
from ackwise.spark.hadoop_files import HadoopFolder
from ackwise.spark.pipelines.checkpoints import FILE, identity
from tests.spark import queue_harness
from tests.spark.queue_harness import QueueHarness
from tests.spark.source.asking import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

url, local_url, local_harness = queue_harness.url, queue_harness.local_url, queue_harness.local_harness


@pytest.fixture
def harness(url: str) -> Iterator[QueueHarness]:
    made = QueueHarness(url)
    made.number(8)
    yield made
    made.close()


def numbers(query: Query) -> list[int]:
    return [msgspec.json.decode(row["payload"])["n"] for row in query.rows()]


def test_claim_that_spark_never_wrote_down_is_made_again(harness: QueueHarness) -> None:
    """It is not a batch that was finished: nothing of it may be settled."""
    killed = Query(harness.url, nonce="n", maxRowsPerTrigger=4)
    assert killed.plan()
    again = Query(harness.url, nonce="n", maxRowsPerTrigger=4)
    assert again.plan()
    assert harness.counts() == {"held": 4, "unread": 4}
    assert again.log == killed.log
    assert numbers(again) == [0, 1, 2, 3]
    assert again.plan()
    assert numbers(again) == [4, 5, 6, 7]
    for query in (killed, again):
        query.reader.stop()


def test_foreign_query_does_not_take_over(harness: QueueHarness) -> None:
    killed = Query(harness.url, nonce="n", maxRowsPerTrigger=4)
    assert killed.plan()
    other = Query(harness.url, nonce="other", maxRowsPerTrigger=4)
    with pytest.raises(ClaimConflict):
        other.plan()
    assert harness.counts() == {"held": 4, "unread": 4}
    for query in (killed, other):
        query.reader.stop()


def test_offset_that_was_half_written(spark: SparkSession, local_harness: QueueHarness, tmp_path: Path) -> None:
    """Spark itself would refuse the checkpoint: its offsets should be empty."""
    checkpoint = tmp_path / "checkpoint"
    mine = identity(HadoopFolder(spark, str(checkpoint)), "q", "g", "g")
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / ".0.0247397d-cc72-4b57-b16d-ffd9df71590f.tmp").write_text("v1")
    local_harness.number(8)
    assert pipeline(spark, local_harness.url).consume("q", "g").map(dict).run(str(checkpoint)).acked == 8
    assert msgspec.json.decode((checkpoint / FILE).read_bytes())["nonce"] == mine.nonce
    assert [one.name for one in (checkpoint / "offsets").iterdir()] == ["0"]
    assert not list(checkpoint.glob("*.tmp"))
