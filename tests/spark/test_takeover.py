"""What a driver leaves behind that was killed at its very first batch, and who takes it over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from ackwise.core.errors import ClaimConflict
from ackwise.spark import pipeline
from ackwise.spark.folders import Folder
from ackwise.spark.pipelines.checkpoints import FILE, identity
from tests.spark import stores
from tests.spark.source.asking import Query
from tests.spark.stores import Desk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

url, local_url, local_desk = stores.url, stores.local_url, stores.local_desk


@pytest.fixture
def desk(url: str) -> Iterator[Desk]:
    made = Desk(url)
    made.number(8)
    yield made
    made.close()


def numbers(query: Query) -> list[int]:
    return [msgspec.json.decode(row["payload"])["n"] for row in query.rows()]


def test_a_claim_that_spark_never_wrote_down_is_made_again(desk: Desk) -> None:
    """It is not a batch that was finished: nothing of it may be settled."""
    killed = Query(desk.url, nonce="n", maxRowsPerTrigger=4)
    assert killed.plan()
    again = Query(desk.url, nonce="n", maxRowsPerTrigger=4)
    assert again.plan()
    assert desk.counts() == {"held": 4, "unread": 4}
    assert again.log == killed.log
    assert numbers(again) == [0, 1, 2, 3]
    assert again.plan()
    assert numbers(again) == [4, 5, 6, 7]
    for query in (killed, again):
        query.reader.stop()


def test_nobody_else_takes_it_over(desk: Desk) -> None:
    killed = Query(desk.url, nonce="n", maxRowsPerTrigger=4)
    assert killed.plan()
    other = Query(desk.url, nonce="other", maxRowsPerTrigger=4)
    with pytest.raises(ClaimConflict):
        other.plan()
    assert desk.counts() == {"held": 4, "unread": 4}
    for query in (killed, other):
        query.reader.stop()


def test_an_offset_that_was_half_written(spark: SparkSession, local_desk: Desk, tmp_path: Path) -> None:
    """Spark itself would refuse the checkpoint: its offsets should be empty."""
    checkpoint = tmp_path / "checkpoint"
    mine = identity(Folder(spark, str(checkpoint)), "q", "g", "g")
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / ".0.0247397d-cc72-4b57-b16d-ffd9df71590f.tmp").write_text("v1")
    local_desk.number(8)
    assert pipeline(spark, local_desk.url).consume("q", "g").map(dict).run(str(checkpoint)).acked == 8
    assert msgspec.json.decode((checkpoint / FILE).read_bytes())["nonce"] == mine.nonce
    assert [one.name for one in (checkpoint / "offsets").iterdir()] == ["0"]
    assert not list(checkpoint.glob("*.tmp"))
