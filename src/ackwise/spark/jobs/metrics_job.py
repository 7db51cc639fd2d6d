"""Job `metrics`: settlements per queue, group and time window, from the ledger."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ackwise.core.validation import MICROS, Seconds
from ackwise.spark.jobs.tables import table
from ackwise.spark.reports.summaries import FAILED, OUTCOMES, QUANTILES, REDELIVERED, window_seconds
from ackwise.wire.timestamps import instant

_KEYS = ("queue", "group", "window_start")


def metrics(
    spark: SparkSession,
    url: str,
    queue: str | None = None,
    group: str | None = None,
    *,
    window: Seconds = 3600,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """Settlements per queue, group and window: counts, rates per second, shares, latencies in seconds."""
    ledger = table(spark, url, "ledger", queue=queue, group=group)
    return measured(ledger, window=window, since=since, until=until)


def measured(
    ledger: DataFrame,
    *,
    window: Seconds = 3600,
    since: datetime | None = None,
    until: datetime | None = None,
    now: datetime | None = None,
) -> DataFrame:
    """Metrics of a DataFrame with the columns of `ledger`. A current window counts up to `now`.

    The window that contains `since` is complete.
    """
    step = window_seconds(window)
    over = instant(now or datetime.now(UTC), "now") // MICROS
    minute = F.unix_seconds("minute")
    rows = ledger.filter(F.col("consumer_group") != "")
    if since is not None:
        first = instant(since, "since") // MICROS
        rows = rows.filter(minute >= first - first % step)
    if until is not None:
        rows = rows.filter(minute < instant(until, "until") // MICROS)
        over = min(over, instant(until, "until") // MICROS)
    rows = rows.select(
        "queue",
        F.col("consumer_group").alias("group"),
        (minute - minute % step).alias("window_start"),
        "outcome",
        "count",
        "latency",
    )
    joined = _counts(rows).join(_latencies(rows), list(_KEYS), "left")
    start = F.col("window_start")
    # A store's clock may be ahead of this machine's.
    lasted = F.when(start < over, F.least(F.lit(over) - start, F.lit(step))).otherwise(step)
    return joined.select(
        "queue",
        "group",
        F.timestamp_seconds(start).alias("window_start"),
        F.timestamp_seconds(start + step).alias("window_end"),
        *OUTCOMES,
        _share(F.col("acked"), lasted).alias("ack_rate"),
        _share(F.col("acked"), _sum("acked", *FAILED)).alias("success_rate"),
        _share(_sum(*REDELIVERED), _sum("acked", "dead", *REDELIVERED)).alias("redelivery_rate"),
        *QUANTILES,
    ).orderBy(*_KEYS)


def _counts(rows: DataFrame) -> DataFrame:
    known = rows.filter(F.col("outcome").isin(*OUTCOMES))
    pivoted = known.groupBy(*_KEYS).pivot("outcome", list(OUTCOMES)).agg(F.sum("count"))
    return pivoted.na.fill(0, list(OUTCOMES))


def _latencies(rows: DataFrame) -> DataFrame:
    """Latency quantiles from claim to ack. Adds the histograms per bucket. A quantile is the bound of its bucket."""
    buckets = rows.filter(F.col("outcome") == "acked").select(*_KEYS, F.explode("latency").alias("bound", "n"))
    summed = buckets.groupBy(*_KEYS, "bound").agg(F.sum("n").alias("n"))
    all_of = Window.partitionBy(*_KEYS)
    counted = summed.withColumn("total", F.sum("n").over(all_of)).withColumn(
        "below", F.sum("n").over(all_of.orderBy("bound"))
    )
    return counted.groupBy(*_KEYS).agg(
        *(
            F.min(F.when(F.col("below") >= F.ceil(F.col("total") * q), F.col("bound"))).alias(name)
            for name, q in QUANTILES.items()
        )
    )


def _sum(first: str, *names: str) -> Column:
    total = F.col(first)
    for name in names:
        total = total + F.col(name)
    return total


def _share(part: Column, whole: Column) -> Column:
    return F.when(whole > 0, part / whole)
