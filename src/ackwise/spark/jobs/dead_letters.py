"""`dead_letter_report`: what died, how often, since when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwise.core.limits import MICROS, one_of
from ackwise.spark.jobs.normalising import normalised
from ackwise.spark.jobs.tables import Row, collected, table

By = Literal["error", "reason", "error_type", "time"]

STEPS = (1, 10, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 86_400, 7 * 86_400)
MOST_STEPS = 48
MOST_ERRORS = 200
LONGEST_EXAMPLE = 2000
_SEEN = ("first_at", "last_at")
_COUNTED = ("queue", "consumer_group", "reason", "error_type", "error_message", "moved_to_dlq_at")
_EXAMPLE = ("id", "partition", "transaction_id", "error_type", "error_message", "retry_count", "deliveries", "payload")


def dead_letter_report(
    spark: SparkSession, url: str, queue: str | None = None, group: str | None = None, by: By = "error"
) -> DataFrame:
    """Dead letters counted by queue, group and error, the most frequent first.

    Rows are `queue, group, reason, error, count, first_at, last_at`, with the error without what differs from case to
    case. `by` counts by `reason`, `error_type` or `time` (in steps that suit the range, from `at` on) instead.
    """
    return counted(table(spark, url, "dead_letters", queue=queue, group=group, columns=_COUNTED), by)


def counted(letters: DataFrame, by: By = "error") -> DataFrame:
    """The same of any DataFrame with the columns of `dead_letters`."""
    one_of(by, "by", get_args(By))
    if by == "time":
        return _by_time(letters, _step(letters))
    keys: dict[By, list[Column]] = {
        "error": _error(),
        "reason": [F.col("reason")],
        "error_type": [F.col("error_type")],
    }
    return _counts(letters, keys[by])


def _error() -> list[Column]:
    return [F.col("reason"), normalised(F.col("error_message")).alias("error")]


def _counts(letters: DataFrame, keys: list[Column], *more: Column) -> DataFrame:
    grouped = letters.groupBy("queue", F.col("consumer_group").alias("group"), *keys)
    counts = grouped.agg(
        F.count("*").alias("count"),
        F.min("moved_to_dlq_at").alias("first_at"),
        F.max("moved_to_dlq_at").alias("last_at"),
        *more,
    )
    return counts.orderBy(F.desc("count"), *counts.columns[: 2 + len(keys)])


def _step(letters: DataFrame) -> int:
    micros = F.unix_micros("moved_to_dlq_at")
    span = letters.agg(F.max(micros) - F.min(micros)).collect()[0][0]
    return step_for((span or 0) / MICROS)


def step_for(seconds: float) -> int:
    """Seconds of a step of time, so that a range has not too many."""
    return next((step for step in STEPS if seconds / step < MOST_STEPS), STEPS[-1])


def _by_time(letters: DataFrame, step: int) -> DataFrame:
    grouped = letters.groupBy(_at(step), "queue", F.col("consumer_group").alias("group"), "reason")
    return grouped.agg(F.count("*").alias("count")).orderBy("at", "queue", "group", "reason")


def _at(step: int) -> Column:
    """Where the step begins in which a message died."""
    return F.timestamp_seconds(F.floor(F.unix_micros("moved_to_dlq_at") / (step * MICROS)) * step).alias("at")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSummary:
    """What the page of a report shows."""

    queue: str | None
    group: str | None
    made_at: datetime
    errors: list[Row]
    """Rows of the report, each with an `example`: the newest dead letter of its kind."""
    reasons: list[Row]
    error_types: list[Row]
    times: list[Row]
    step: int
    """Seconds between two `at` of the times."""

    @property
    def total(self) -> int:
        return sum(row["count"] for row in self.reasons)


def summarised(
    letters: DataFrame, made_at: datetime, *, queue: str | None = None, group: str | None = None
) -> DeadLetterSummary:
    """Everything the page shows, from a DataFrame with the columns of `dead_letters`."""
    needed = letters.select("queue", "consumer_group", "reason", "moved_to_dlq_at", *_EXAMPLE)
    kept = needed.withColumn("payload", F.substring("payload", 1, LONGEST_EXAMPLE)).persist()
    newest = F.max_by(F.struct(*_EXAMPLE), F.struct("moved_to_dlq_at", "id"))
    try:
        step = _step(kept)
        cells = collected(_counts(kept, [_at(step), F.col("reason"), F.col("error_type")]))
        return DeadLetterSummary(
            queue=queue,
            group=group,
            made_at=made_at,
            errors=collected(_counts(kept, _error(), newest.alias("example")).limit(MOST_ERRORS)),
            reasons=_summed(cells, "reason"),
            error_types=_summed(cells, "error_type"),
            times=sorted(_summed(cells, "reason", "at"), key=lambda row: row["at"]),
            step=step,
        )
    finally:
        kept.unpersist()


def _summed(cells: list[Row], *keys: str) -> list[Row]:
    """Counts by queue, group and these keys, the most frequent first."""
    found: dict[tuple[Any, ...], Row] = {}
    for cell in cells:
        key = {name: cell[name] for name in ("queue", "group", *keys)}
        row = found.setdefault((*key.values(),), {**key, "count": 0, **{name: cell[name] for name in _SEEN}})
        row["count"] += cell["count"]
        row["first_at"], row["last_at"] = min(row["first_at"], cell["first_at"]), max(row["last_at"], cell["last_at"])
    return sorted(found.values(), key=lambda row: -row["count"])
