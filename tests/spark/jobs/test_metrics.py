"""Rates, shares and latencies, against values worked out by hand."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from ackwise import Retry, connect
from ackwise.core.errors import BadInput
from ackwise.spark.jobs import metrics
from ackwise.spark.jobs.metrics_job import measured
from ackwise.spark.jobs.tables import collected
from tests.spark.jobs.frames import Row, at, frame

HOUR = timedelta(hours=1)


def minute(when: str, outcome: str, count: int, latency: dict[float, int] | None = None, **more: str) -> Row:
    return {
        "queue": "orders",
        "consumer_group": "billing",
        "minute": at(f"2030-01-31T{when}:00"),
        "outcome": outcome,
        "count": count,
        "latency": latency or {},
        **more,
    }


LEDGER = [
    minute("12:00", "acked", 60, {0.1: 50, 0.2: 10}),
    minute("12:59", "acked", 30, {0.2: 25, 1.0: 3, 5.0: 2}),
    minute("12:10", "retried", 6, {9.0: 6}),
    minute("12:11", "dead", 3),
    minute("12:12", "released", 5),
    minute("12:13", "lease_expired", 1),
    minute("12:14", "redriven", 100),
    minute("13:00", "retried", 4),
    minute("12:00", "acked", 7, consumer_group="shipping"),
    minute("12:00", "pushed", 1000, consumer_group=""),
]


def test_window_worked_out_by_hand(spark: SparkSession) -> None:
    rows = collected(measured(frame(spark, "ledger", LEDGER), now=at("2030-01-31T20:00:00")))
    assert [(row["group"], row["window_start"], row["window_end"]) for row in rows] == [
        ("billing", at("2030-01-31T12:00:00"), at("2030-01-31T13:00:00")),
        ("billing", at("2030-01-31T13:00:00"), at("2030-01-31T14:00:00")),
        ("shipping", at("2030-01-31T12:00:00"), at("2030-01-31T13:00:00")),
    ]
    first, second, third = rows
    assert {name: first[name] for name in ("acked", "retried", "dead", "released", "lease_expired", "expired")} == {
        "acked": 90,
        "retried": 6,
        "dead": 3,
        "released": 5,
        "lease_expired": 1,
        "expired": 0,
    }
    assert first["ack_rate"] == pytest.approx(90 / 3600)
    assert first["success_rate"] == pytest.approx(90 / 100)
    assert first["redelivery_rate"] == pytest.approx(12 / 105)
    # Of 90 acks 50 took up to 0.1 s, 85 up to 0.2 s, 88 up to 1 s. The quantiles are numbers 45, 86 and 90.
    assert (first["latency_p50"], first["latency_p95"], first["latency_p99"]) == (0.1, 1.0, 5.0)
    assert (second["acked"], second["ack_rate"], second["success_rate"], second["redelivery_rate"]) == (0, 0, 0, 1)
    assert second["latency_p50"] is None
    assert (third["success_rate"], third["latency_p99"]) == (1, None)


def test_windows_are_cut_as_asked(spark: SparkSession) -> None:
    ledger = frame(spark, "ledger", LEDGER)
    halves = collected(measured(ledger, window=HOUR / 2, now=at("2030-01-31T20:00:00")))
    assert [row["acked"] for row in halves if row["group"] == "billing"] == [60, 30, 0]
    late = collected(measured(ledger, since=at("2030-01-31T12:59:00"), window=HOUR / 2))
    assert [row["acked"] for row in late] == [30, 0]
    early = collected(measured(ledger, until=at("2030-01-31T12:30:00"), now=at("2030-01-31T20:00:00")))
    assert [(row["group"], row["ack_rate"]) for row in early] == [("billing", 60 / 1800), ("shipping", 7 / 1800)]


def test_window_that_is_not_over_counts_until_now(spark: SparkSession) -> None:
    ledger = frame(spark, "ledger", [minute("12:00", "acked", 60)])
    (row,) = collected(measured(ledger, now=at("2030-01-31T12:02:00")))
    assert row["ack_rate"] == 0.5
    (ahead,) = collected(measured(ledger, now=at("2030-01-31T11:00:00")))
    assert ahead["ack_rate"] == 60 / 3600


@pytest.mark.parametrize("window", [0, 59, 90, -60, timedelta(minutes=1.5)])
def test_windows_are_whole_minutes(spark: SparkSession, window: float | timedelta) -> None:
    with pytest.raises(BadInput, match="window"):
        measured(frame(spark, "ledger", []), window=window)


def test_metrics_of_a_store_count_each_outcome(spark: SparkSession, any_url: str) -> None:
    with connect(any_url) as queue:
        queue.push_many("orders", [{"id": number} for number in range(10)])
        batch = queue.claim("orders", group="billing", max=10)
        for delivery in batch[:8]:
            delivery.ack()
        with batch[8]:
            raise Retry(error="later")
        batch[9].reject("never")
    (row,) = collected(metrics(spark, any_url, "orders", window=24 * 3600, since=at("2000-01-01T00:00:00")))
    assert (row["acked"], row["retried"], row["dead"], row["success_rate"]) == (8, 1, 1, 0.8)
    assert row["latency_p50"] <= row["latency_p99"]
