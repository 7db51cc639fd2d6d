"""Job `lag`: unfinished messages per group, their age, and an estimate of the time left."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwise.core.validation import MICROS, count
from ackwise.spark.jobs.tables import table
from ackwise.wire.timestamps import instant

RECENT_MINUTES = 5


_NEEDED = ("queue", "consumer_group", "partition", "lag", "unread", "held", "oldest_unfinished_at")


def lag(
    spark: SparkSession,
    url: str,
    queue: str | None = None,
    group: str | None = None,
    *,
    partitions: bool = False,
    minutes: int = RECENT_MINUTES,
) -> DataFrame:
    """Unread and held messages per queue and group, the age of the oldest, and an estimate of the time left.

    The estimate uses the acks of the last `minutes`. It is null without acks. With `partitions` there is one row per
    partition, without an estimate, because the ledger does not count acks per partition.
    """
    groups = table(spark, url, "groups", queue=queue, group=group, columns=_NEEDED)
    now = datetime.now(UTC)
    if partitions:
        return by_partition(groups, now)
    return by_group(groups, table(spark, url, "ledger", queue=queue, group=group), now, minutes)


def by_partition(groups: DataFrame, now: datetime) -> DataFrame:
    """One row per queue, group and partition, the largest lag first."""
    return groups.select(
        "queue",
        F.col("consumer_group").alias("group"),
        "partition",
        "lag",
        "unread",
        "held",
        _age("oldest_unfinished_at", now),
    ).orderBy(F.desc("lag"), "queue", "group", "partition")


def by_group(groups: DataFrame, ledger: DataFrame, now: datetime, minutes: int = RECENT_MINUTES) -> DataFrame:
    """One row per queue and group, the largest lag first."""
    count(minutes, "minutes")
    keys = ["queue", "consumer_group"]
    totals = groups.groupBy(*keys).agg(
        *(F.sum(name).alias(name) for name in ("lag", "unread", "held")),
        F.min("oldest_unfinished_at").alias("oldest_unfinished_at"),
    )
    until = instant(now, "now") // MICROS
    since = until - until % 60 - 60 * minutes
    recent = ledger.filter((F.col("outcome") == "acked") & (F.unix_seconds("minute") >= since))
    rates = recent.groupBy(*keys).agg((F.sum("count") / (until - since)).alias("ack_rate"))
    return (
        totals.join(rates, keys, "left")
        .select(
            "queue",
            F.col("consumer_group").alias("group"),
            "lag",
            "unread",
            "held",
            _age("oldest_unfinished_at", now),
            F.coalesce("ack_rate", F.lit(0.0)).alias("ack_rate"),
            F.when(F.col("lag") == 0, 0.0).otherwise(F.col("lag") / F.col("ack_rate")).alias("drain_seconds"),
        )
        .orderBy(F.desc("lag"), "queue", "group")
    )


def _age(column: str, now: datetime) -> Column:
    micros = F.greatest(F.lit(0), F.lit(instant(now, "now")) - F.unix_micros(column))
    return F.when(F.col(column).isNotNull(), micros / MICROS).alias("oldest_seconds")
