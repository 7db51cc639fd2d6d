"""Archiving: what every group has finished, each message once, wherever a run dies."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ackwise import Item, connect
from ackwise.client import Connection
from ackwise.clock import ManualClock
from ackwise.core.commands import PruneQueue
from ackwise.core.errors import Conflict, NotFound, StoreCorrupt, UnknownQueue
from ackwise.core.queries import ListLanes
from ackwise.spark.jobs import archive
from ackwise.spark.jobs.archive_job import settled_messages
from ackwise.spark.jobs.archive_manifest import Archive
from ackwise.spark.jobs.tables import collected
from ackwise.spark.source.lane_ranges import SourceRange
from tests.spark.jobs.frames import at


def fill(queue: Connection, *numbers: int, name: str = "orders") -> None:
    queue.push_many(name, [Item(payload={"n": number}, transaction_id=f"{name}-{number}") for number in numbers])


def finish(queue: Connection, count: int, name: str = "orders", group: str = "billing") -> None:
    batch = queue.claim(name, group=group, max=count)
    assert len(batch) == count
    batch.ack()


def plainly(spark: SparkSession, path: Path) -> DataFrame:
    """Reads the archive as plain Parquet."""
    return spark.read.parquet(str(path))


def archived(spark: SparkSession, path: Path) -> dict[str, int]:
    """How often each message is there, by its transaction id."""
    return Counter(row.transaction_id for row in plainly(spark, path).select("transaction_id").collect())


def orders(*numbers: int) -> dict[str, int]:
    return {f"orders-{number}": 1 for number in numbers}


def test_archive_takes_messages_that_every_group_finished(
    spark: SparkSession, queue: Connection, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    fill(queue, *range(6))
    assert [row["messages"] for row in collected(archive(spark, url, str(path)))] == [0]  # there is no group
    queue.create_group("orders", "slow")
    batch = queue.claim("orders", group="billing", max=5)
    batch[1].reject("never")
    batch[3].retry(delay=3600)
    for delivery in (batch[0], batch[2], batch[4]):
        delivery.ack()
    finish(queue, 2, group="slow")
    (row,) = collected(archive(spark, url, str(path)))
    assert (row["queue"], row["messages"], row["missing"], row["pruned"]) == ("orders", 2, 0, 0)
    assert archived(spark, path) == orders(0, 1)
    finish(queue, 4, group="slow")
    assert collected(archive(spark, url, str(path)))[0]["messages"] == 1  # 3 still waits
    assert collected(archive(spark, url, str(path)))[0]["messages"] == 0
    assert archived(spark, path) == orders(0, 1, 2)


def test_archive_is_split_by_queue_and_day_with_all_columns(spark: SparkSession, url: str, tmp_path: Path) -> None:
    path, clock = tmp_path / "archive", ManualClock(round(at("2026-01-31T23:59:59").timestamp() * 1_000_000))
    with connect(url, clock=clock) as queue:
        for name in ("2024", "a b:c/d%é"):
            queue.create_queue(name, completed_retention_seconds=None)
        queue.push("2024", {"n": 1}, partition="eu", priority=3, headers={"source": "web"}, transaction_id="one")
        clock.advance(2)
        queue.push("2024", b"\xff\x00", partition="eu", transaction_id="two")
        queue.push("a b:c/d%é", "x", transaction_id="three")
        finish(queue, 2, "2024")
        finish(queue, 1, "a b:c/d%é")
    assert sum(row["messages"] for row in collected(archive(spark, url, str(path)))) == 3
    rows = {row.transaction_id: row for row in Archive(spark, str(path)).read().collect()}
    assert {(row.queue, row.day) for row in rows.values()} == {
        ("2024", date(2026, 1, 31)),
        ("2024", date(2026, 2, 1)),
        ("a b:c/d%é", date(2026, 2, 1)),
    }
    one = rows["one"]
    assert (one.partition, one.priority, one.seq, one.payload) == ("eu", 3, 0, '{"n":1}')
    assert (one.headers, one.content_type) == ({"source": "web"}, "application/json")
    assert rows["two"].payload == '{"$base64":"/wA="}'
    assert (path / "queue=2024" / "day=2026-01-31").is_dir()


def staged(spark: SparkSession, queue: Connection, url: str, books: Archive) -> tuple[str, dict[str, int]]:
    """All of `orders` written aside, and the places that go with it."""
    (lane,) = queue._transport.ask(ListLanes(queue="orders", settled=True))
    assert lane.settled is not None
    lane_range = SourceRange(lane.lane, "orders", lane.partition, lane.partition_id, lane.priority, 0, lane.settled)
    return books.stage(settled_messages(spark, url, [[lane_range]])), {f"{lane.partition_id}/0": lane.settled}


def test_run_that_died_before_its_manifest_archived_nothing(
    spark: SparkSession, queue: Connection, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    fill(queue, 0, 1, 2)
    finish(queue, 3)
    name, _ = staged(spark, queue, url, Archive(spark, str(path)))
    assert Archive(spark, str(path)).last is None
    assert collected(archive(spark, url, str(path)))[0]["messages"] == 3
    assert archived(spark, path) == orders(0, 1, 2)
    # Its files are hidden from readers, and gone with the next run.
    assert (path / name).exists()
    archive(spark, url, str(path))
    assert not (path / name).exists()


def test_run_killed_after_manifest_is_finished_by_next_run(
    spark: SparkSession, queue: Connection, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    fill(queue, 0, 1, 2)
    finish(queue, 3)
    archive(spark, url, str(path))
    last = Archive(spark, str(path)).last
    assert last is not None
    for source, target in last.files:  # as if it had died before it moved them
        (path / source).parent.mkdir(parents=True)
        (path / target).rename(path / source)
    fill(queue, 3)
    finish(queue, 1)
    assert collected(archive(spark, url, str(path)))[0]["messages"] == 1
    assert archived(spark, path) == orders(0, 1, 2, 3)


KILLED = """
import os, sys
from ackwise.spark import session
from ackwise.spark.jobs import archive, archive_manifest

archive_manifest.Archive.commit = lambda *_: os.kill(os.getpid(), 9)
archive(session(master="local[1]"), *sys.argv[1:])
"""


@pytest.mark.long
def test_process_killed_between_data_and_manifest(
    spark: SparkSession, queue: Connection, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    fill(queue, *range(10))
    finish(queue, 10)
    killed = subprocess.run([sys.executable, "-c", KILLED, url, str(path)], capture_output=True, timeout=200)
    assert killed.returncode == -9, killed.stderr.decode()
    assert list(path.glob("_ackwise/*/queue=orders/*/*.parquet"))
    assert collected(archive(spark, url, str(path)))[0]["messages"] == 10
    assert archived(spark, path) == orders(*range(10))


def test_second_of_two_concurrent_archives_is_a_conflict(
    spark: SparkSession, queue: Connection, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    fill(queue, 0, 1)
    finish(queue, 2)
    slow = Archive(spark, str(path))
    aside, places = staged(spark, queue, url, slow)
    archive(spark, url, str(path))
    with pytest.raises(Conflict, match="another run"):
        slow.commit(aside, places, 2, "2030-01-31T12:00:00+00:00")
    assert archived(spark, path) == orders(0, 1)


def test_archive_with_prune_removes_archived_messages(
    spark: SparkSession, queue: Connection, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    fill(queue, 0, 1)
    finish(queue, 2)
    archive(spark, url, str(path))
    fill(queue, 2)  # a commit of its own, and so a segment of its own
    fill(queue, 3)
    finish(queue, 1)
    (row,) = collected(archive(spark, url, str(path), prune=True))
    assert (row["messages"], row["pruned"]) == (1, 3)
    assert [one.json()["n"] for one in queue.browse("orders")] == [3]
    finish(queue, 1)
    assert collected(archive(spark, url, str(path), prune=True))[0]["pruned"] == 1
    assert archived(spark, path) == orders(0, 1, 2, 3)


def test_messages_pruned_before_the_archive_count_as_missing(
    spark: SparkSession, queue: Connection, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    fill(queue, 0, 1)
    finish(queue, 2)
    (lane,) = queue._transport.ask(ListLanes(queue="orders"))
    queue._transport.send(PruneQueue(queue="orders", lanes={lane.lane: 2}))
    fill(queue, 2)
    finish(queue, 1)
    (row,) = collected(archive(spark, url, str(path)))
    assert (row["messages"], row["missing"]) == (1, 2)
    assert collected(archive(spark, url, str(path)))[0]["missing"] == 0


def test_archive_over_a_server_prunes_all_messages(spark: SparkSession, any_url: str, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    with connect(any_url) as queue:
        fill(queue, *range(50))
        finish(queue, 50)
        (row,) = collected(archive(spark, any_url, str(path), "orders", prune=True))
        assert (row["messages"], row["pruned"]) == (50, 50)
        assert queue.stats("orders").messages == 0
    assert archived(spark, path) == orders(*range(50))


def test_archive_without_queue_or_manifest_is_refused(
    spark: SparkSession, queue: Connection, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    with pytest.raises(UnknownQueue, match="nowhere"):
        archive(spark, url, str(path), "nowhere")
    assert archive(spark, url, str(path)).collect() == []
    with pytest.raises(NotFound, match="no archive"):
        Archive(spark, str(path)).read()
    (path / "_ackwise").mkdir(parents=True)
    (path / "_ackwise" / "00000001.json").write_text("{")
    with pytest.raises(StoreCorrupt, match=r"00000001\.json is damaged"):
        archive(spark, url, str(path))
