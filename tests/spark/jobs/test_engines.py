"""The two engines of `lag`, `metrics`, `dlq report` and `archive`: the local one prints what Spark prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ackwise import connect
from ackwise.cli import local_archive
from ackwise.core.error_kinds import error_kind
from ackwise.spark.jobs.archive_manifest import Archive
from tests.cli.conftest import Ackwise
from tests.core.kinds_of_errors import TABLE

pytestmark = pytest.mark.usefixtures("spark")
AGES = {"oldest_seconds", "ack_rate", "drain_seconds"}
"""Fields that depend on the instant of the command."""


def fill(url: str) -> None:
    """Two queues, two groups, acks, retries, dead letters of two errors, and messages that no group finished."""
    with connect(url) as queue:
        for number in range(8):
            queue.push("orders", {"id": number}, partition=f"p{number % 2}", headers={"n": str(number)})
        queue.push("orders", b"\x00bytes", partition="p1")
        queue.push("od=d/ä", {"id": 1}, transaction_id="mine", priority=4)
        batch = queue.claim("orders", group="billing", max=6)
        batch[0].reject("order 17 of 'acme' not found")
        batch[1].reject("order 18 of 'acme' not found")
        batch[2].reject("timeout after 30 s")
        batch[3].retry(delay=3600)
        batch.ack()
        queue.claim("orders", max=3).ack()
        queue.claim("od=d/ä", group="other").ack()


def both(ackwise: Ackwise, *words: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of a command by each engine, without what changes from second to second."""
    sides = []
    for engine in ("local", "spark"):
        said = ackwise(*words, "--json", "--engine", engine)
        assert said.code == 0, said.err
        sides.append([{key: value for key, value in row.items() if key not in AGES} for row in said.json])
    return sides[0], sides[1]


def test_engines_print_the_same_rows(ackwise: Ackwise, url: str) -> None:
    fill(url)
    for words in (
        ("lag",),
        ("lag", "--partitions", "--queue", "orders"),
        ("lag", "--group", "billing"),
        ("metrics", "--window", "1d"),
        ("metrics", "--queue", "orders", "--group", "billing", "--window", "5m", "--since", "1h"),
        ("dlq", "report"),
        ("dlq", "report", "--group", "billing"),
    ):
        local, spark = both(ackwise, *words)
        assert local, words
        assert local == spark, words
        assert [list(row) for row in local] == [list(row) for row in spark], words


def test_engines_print_the_same_table(ackwise: Ackwise, url: str) -> None:
    fill(url)
    assert ackwise("dlq", "report").out == ackwise("dlq", "report", "--engine", "spark").out


def test_local_normalisation_is_that_of_spark() -> None:
    assert {error: error_kind(error or "") for error in TABLE} == TABLE


def stored(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    columns = ("message_id", "transaction_id", "queue", "partition", "priority", "seq", "payload", "content_type")
    frame = Archive(spark, str(path)).read()
    rows = frame.select(*columns, "partition_id", "created_at", "day", "headers").collect()
    return sorted((*row[:11], tuple(sorted(row[11].items()))) for row in rows)


def test_engines_write_the_same_archive(ackwise: Ackwise, url: str, tmp_path: Path, spark: SparkSession) -> None:
    fill(url)
    sides = []
    for engine in ("local", "spark"):
        path = tmp_path / engine
        said = ackwise("archive", str(path), "--json", "--engine", engine)
        assert said.code == 0, said.err
        sides.append((said.json, stored(spark, path)))
    assert sides[0] == sides[1]
    assert sum(row["messages"] for row in sides[0][0]) == len(sides[0][1]) > 0


def test_engines_continue_the_archive_of_each_other(
    ackwise: Ackwise, url: str, tmp_path: Path, spark: SparkSession
) -> None:
    fill(url)
    path = tmp_path / "archive"
    first = ackwise("archive", str(path), "--queue", "orders", "--json", "--engine", "spark").json
    again = ackwise("archive", str(path), "--json").json
    assert (first[0]["messages"] > 0, [row["messages"] for row in again]) == (True, [1, 0])
    with connect(url) as queue:
        queue.seek("orders", "billing", to="end")
        queue.seek("orders", "__QUEUE_MODE__", to="end")
    last = ackwise("archive", str(path), "--queue", "orders", "--prune", "--yes", "--json").json
    assert last[0]["messages"] == 9 - first[0]["messages"]
    assert len(stored(spark, path)) == 10
    assert ackwise("archive", str(path), "--engine", "spark", "--json").json[-1]["messages"] == 0
    assert ackwise("replay", str(path), "--to-queue", "again", "--json").json == [
        {"queue": "again", "pushed": 10, "duplicates": 0}
    ]


def test_local_archive_writes_many_files(
    ackwise: Ackwise, url: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(url)
    monkeypatch.setattr(local_archive, "ROWS_PER_FILE", 2)
    monkeypatch.setattr(local_archive, "PAGE", 1)
    count = sum(row["messages"] for row in ackwise("archive", str(tmp_path / "a"), "--json").json)
    assert len(stored(spark, tmp_path / "a")) == count > 2
    assert len(list((tmp_path / "a").rglob("*.parquet"))) > 1
    assert ackwise("archive", "hdfs://nowhere/a").code == 2
    assert ackwise("archive", str(tmp_path / "b"), "--dry-run").out.startswith("would archive up to")


def test_master_without_spark_is_refused(ackwise: Ackwise, url: str) -> None:
    connect(url).close()
    for words in (("lag",), ("metrics",), ("dlq", "report"), ("archive", "x")):
        assert ackwise(*words, "--master", "local[1]").code == 2
