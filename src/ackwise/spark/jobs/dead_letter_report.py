"""Job `dead_letter_report`: counts dead letters by normalised error."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwise.core.error_kinds import EMAIL, LONGEST_KIND, PLACEHOLDERS, QUOTED, TRACEBACK, UUID
from ackwise.core.validation import MICROS, one_of
from ackwise.spark.jobs.tables import collected, table
from ackwise.spark.reports.summaries import LONGEST_EXAMPLE, MOST_ERRORS, DeadLetterSummary, step_for, summed

By = Literal["error", "reason", "error_type", "time"]

_COUNTED = ("queue", "consumer_group", "reason", "error_type", "error_message", "moved_to_dlq_at")
_EXAMPLE = ("id", "partition", "transaction_id", "error_type", "error_message", "retry_count", "deliveries", "payload")


def dead_letter_report(
    spark: SparkSession, url: str, queue: str | None = None, group: str | None = None, by: By = "error"
) -> DataFrame:
    """Dead letters counted by queue, group and error, the most frequent first.

    Rows are `queue, group, reason, error, count, first_at, last_at`. Numbers, ids and quoted texts in the error are
    replaced by placeholders. `by` counts by `reason`, `error_type` or `time` instead. The steps of `time` fit the
    range.
    """
    return counted(table(spark, url, "dead_letters", queue=queue, group=group, columns=_COUNTED), by)


def counted(letters: DataFrame, by: By = "error") -> DataFrame:
    """Report of a DataFrame with the columns of `dead_letters`."""
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


def _by_time(letters: DataFrame, step: int) -> DataFrame:
    grouped = letters.groupBy(_at(step), "queue", F.col("consumer_group").alias("group"), "reason")
    return grouped.agg(F.count("*").alias("count")).orderBy("at", "queue", "group", "reason")


def _at(step: int) -> Column:
    """Start of the time step in which a message died."""
    return F.timestamp_seconds(F.floor(F.unix_micros("moved_to_dlq_at") / (step * MICROS)) * step).alias("at")


def summarised(
    letters: DataFrame, made_at: datetime, *, queue: str | None = None, group: str | None = None
) -> DeadLetterSummary:
    """Summarise a DataFrame with the columns of `dead_letters`."""
    needed = letters.select("queue", "consumer_group", "reason", "moved_to_dlq_at", *_EXAMPLE)
    cached = needed.withColumn("payload", F.substring("payload", 1, LONGEST_EXAMPLE)).persist()
    newest = F.max_by(F.struct(*_EXAMPLE), F.struct("moved_to_dlq_at", "id"))
    try:
        step = _step(cached)
        cells = collected(_counts(cached, [_at(step), F.col("reason"), F.col("error_type")]))
        return DeadLetterSummary(
            queue=queue,
            group=group,
            made_at=made_at,
            errors=collected(_counts(cached, _error(), newest.alias("example")).limit(MOST_ERRORS)),
            reasons=summed(cells, "reason"),
            error_types=summed(cells, "error_type"),
            times=sorted(summed(cells, "reason", "at"), key=lambda row: row["at"]),
            step=step,
        )
    finally:
        cached.unpersist()


def normalised(error: Column) -> Column:
    """The kind of an error, as `core.error_kinds.error_kind` builds it."""
    text = F.trim(_telling_line(F.coalesce(error, F.lit(""))))
    text = F.regexp_replace(text, EMAIL, "<email>")
    text = F.regexp_replace(text, UUID, "<uuid>")
    # A message that is only a quoted word, such as a KeyError's, keeps the word.
    quoted = F.regexp_replace(text, rf"(?<!\w){QUOTED}(?!\w)", "<text>")
    text = F.when(text.rlike(f"^{QUOTED}$"), text).otherwise(quoted)
    for pattern, placeholder in PLACEHOLDERS:
        text = F.regexp_replace(text, pattern, placeholder)
    return F.substring(text, 1, LONGEST_KIND)


def _telling_line(text: Column) -> Column:
    """The line with the error: the last line of a Python traceback, the first line of any other text."""
    lines = F.filter(F.split(text, r"\R"), lambda line: F.trim(line) != "")
    last = text.startswith(TRACEBACK)
    return F.coalesce(F.get(lines, F.when(last, F.size(lines) - 1).otherwise(0)), F.lit(""))
