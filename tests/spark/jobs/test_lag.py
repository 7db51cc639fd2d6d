"""What is left to do, and how long it takes."""

from __future__ import annotations

import time
from datetime import timedelta

from pyspark.sql import SparkSession

from ackwise import connect
from ackwise.core.queries import ReadLedger
from ackwise.spark.connections import open_connection
from ackwise.spark.jobs import lag
from ackwise.spark.jobs.lag_job import by_group
from ackwise.spark.jobs.tables import collected
from tests.spark.jobs.frames import Row, at, frame

NOW = at("2030-01-31T12:00:30")


def place(partition: str, unread: int, held: int, age: float | None, group: str = "billing") -> Row:
    return {
        "queue": "orders",
        "partition": partition,
        "consumer_group": group,
        "lag": unread + held,
        "unread": unread,
        "held": held,
        "oldest_unfinished_at": None if age is None else NOW - timedelta(seconds=age),
    }


def acked(minutes_ago: int, count: int, outcome: str = "acked") -> Row:
    minute = NOW.replace(second=0) - timedelta(minutes=minutes_ago)
    return {"queue": "orders", "consumer_group": "billing", "minute": minute, "outcome": outcome, "count": count}


def test_estimate_goes_by_the_last_minutes(spark: SparkSession) -> None:
    places = [place("a", 500, 20, 90), place("b", 0, 10, 30.5), place("c", 0, 0, None)]
    places += [place("a", 5, 0, 7, "idle"), place("a", 0, 0, None, "done")]
    ledger = [acked(0, 30), acked(5, 300), acked(6, 9999), acked(1, 9999, "retried")]
    rows = collected(by_group(frame(spark, "groups", places), frame(spark, "ledger", ledger), NOW))
    assert [(r["group"], r["lag"], r["unread"], r["held"], r["oldest_seconds"]) for r in rows] == [
        ("billing", 530, 500, 30, 90),
        ("idle", 5, 5, 0, 7),
        ("done", 0, 0, 0, None),
    ]
    # 330 acks in five minutes and a half.
    assert [(r["ack_rate"], r["drain_seconds"]) for r in rows] == [(1.0, 530.0), (0.0, None), (0.0, 0.0)]


def wait_for_ledger(url: str) -> None:
    """It is written about once a second."""
    here = open_connection(url, duties=False)
    try:
        while not here.transport.ask(ReadLedger(queue="orders")):
            time.sleep(0.05)
    finally:
        here.close()


def test_lag_of_a_store_counts_unread_and_held(spark: SparkSession, any_url: str) -> None:
    with connect(any_url) as queue:
        for partition, count in (("eu", 5), ("us", 3)):
            queue.push_many("orders", [{"id": number} for number in range(count)], partition=partition)
        held = queue.claim("orders", group="billing", max=2, partitions=["eu"])
        held[0].ack()
        wait_for_ledger(any_url)
        (total,) = collected(lag(spark, any_url, "orders"))
        assert (total["lag"], total["unread"], total["held"]) == (7, 6, 1)
        assert total["drain_seconds"] > 0
        apart = collected(lag(spark, any_url, group="billing", partitions=True))
        assert [(row["partition"], row["lag"], row["held"]) for row in apart] == [("eu", 4, 1), ("us", 3, 0)]
        assert collected(lag(spark, any_url, group="missing")) == []
