"""Archived messages pushed again: the slice that was asked for, once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwise import Item, connect
from ackwise.client import Connection
from ackwise.clock import ManualClock
from ackwise.core.errors import BadInput, NotFound
from ackwise.spark.jobs import archive, replay
from tests.spark.jobs.frames import at

FIRST = at("2026-01-31T23:00:00")


@pytest.fixture
def path(spark: SparkSession, url: str, tmp_path: Path) -> str:
    """Six orders of two partitions, made half an hour apart, and a mail."""
    clock = ManualClock(round(FIRST.timestamp() * 1_000_000))
    with connect(url, clock=clock) as queue:
        for name in ("orders", "mail"):
            queue.create_queue(name, completed_retention_seconds=None)
        for number in range(6):
            queue.push("orders", {"n": number}, partition=f"p{number % 2}", priority=number % 2)
            clock.advance(1800)
        queue.push("mail", b"\xff\x00", headers={"to": "x"}, content_type="image/png")
        queue.push("mail", b"{broken", content_type="application/json")
        for name, count in (("orders", 6), ("mail", 2)):
            queue.claim(name, group="all", max=count).ack()
    archive(spark, url, str(tmp_path / "archive"))
    return str(tmp_path / "archive")


def numbers(queue: Connection, name: str) -> dict[str, list[int]]:
    """By partition, in their order."""
    found: dict[str, list[int]] = {}
    for one in queue.browse(name, limit=1000):
        found.setdefault(one.partition, []).append(one.json()["n"])
    return found


def counts(rows: object) -> list[tuple[object, ...]]:
    return [tuple(row) for row in rows.collect()]  # type: ignore[attr-defined]


def test_repeated_replay_pushes_once_unless_copied(spark: SparkSession, path: str, any_url: str) -> None:
    assert counts(replay(spark, path, any_url, dry_run=True)) == [("mail", 2, 0), ("orders", 6, 0)]
    assert counts(replay(spark, path, any_url, "orders", to_queue="again")) == [("again", 6, 0)]
    assert counts(replay(spark, path, any_url, "orders", to_queue="again")) == [("again", 0, 6)]
    with connect(any_url) as queue:
        assert numbers(queue, "again") == {"p0": [0, 2, 4], "p1": [1, 3, 5]}
        assert {one.priority for one in queue.browse("again") if one.partition == "p1"} == {1}
    assert counts(replay(spark, path, any_url, "orders", to_queue="again", copy="second")) == [("again", 6, 0)]
    assert counts(replay(spark, path, any_url, "orders", to_queue="again", copy="second")) == [("again", 0, 6)]
    assert counts(replay(spark, path, any_url, "orders", to_queue="again", copy=True)) == [("again", 6, 0)]


def test_payloads_come_back_as_they_were(spark: SparkSession, path: str, any_url: str) -> None:
    assert counts(replay(spark, path, any_url, "mail", to_queue="again")) == [("again", 2, 0)]
    with connect(any_url) as queue:
        picture, broken = queue.browse("again")
    assert (picture.payload, picture.content_type, picture.headers) == (b"\xff\x00", "image/png", {"to": "x"})
    # It said that it was JSON; a server would not take it as such.
    assert (broken.payload, broken.content_type) == (b"{broken", "application/octet-stream")


def test_replay_of_a_time_slice_pushes_only_its_messages(spark: SparkSession, path: str, url: str) -> None:
    midnight = FIRST + timedelta(hours=1)
    assert counts(replay(spark, path, url, "orders", to_queue="late", since=midnight)) == [("late", 4, 0)]
    assert counts(replay(spark, path, url, "orders", to_queue="early", until=midnight)) == [("early", 2, 0)]
    chosen = replay(spark, path, url, to_queue="few", where="get_json_object(payload, '$.n') IN (1, 2)")
    assert counts(chosen) == [("few", 2, 0)]
    with connect(url) as queue:
        assert numbers(queue, "late") == {"p0": [2, 4], "p1": [3, 5]}
        assert numbers(queue, "early") == {"p0": [0], "p1": [1]}
        assert numbers(queue, "few") == {"p0": [2], "p1": [1]}


def test_back_where_it_came_from_is_at_the_end(spark: SparkSession, path: str, url: str) -> None:
    assert counts(replay(spark, path, url, "orders")) == [("orders", 6, 0)]
    with connect(url) as queue:
        assert numbers(queue, "orders") == {"p0": [0, 2, 4, 0, 2, 4], "p1": [1, 3, 5, 1, 3, 5]}


def test_refused_replay_pushes_nothing(spark: SparkSession, path: str, url: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--where 'nosuch = 1': .*nosuch"):
        replay(spark, path, url, to_queue="again", where="nosuch = 1")
    with pytest.raises(BadInput, match="to_queue must not be empty"):
        replay(spark, path, url, to_queue="")
    with pytest.raises(NotFound, match=r"there is no archive at .*/elsewhere"):
        replay(spark, str(tmp_path / "elsewhere"), url)
    with connect(url) as queue:
        assert {info.name for info in queue.queues()} == {"mail", "orders"}
        queue.create_queue("small", max_payload_bytes=2)
    with pytest.raises(BadInput, match="over the queue's limit"):
        replay(spark, path, url, "orders", to_queue="small")


def test_long_lane_goes_in_pages_and_keeps_its_order(spark: SparkSession, url: str, tmp_path: Path) -> None:
    with connect(url) as queue:
        queue.push_many("long", [Item(payload={"n": number}) for number in range(2500)])
        queue.claim("long", group="all", max=2500).ack()
        archive(spark, url, str(tmp_path / "archive"))
        assert counts(replay(spark, str(tmp_path / "archive"), url, to_queue="again")) == [("again", 2500, 0)]
        assert [one.json()["n"] for one in queue.browse("again", limit=3000)] == list(range(2500))
