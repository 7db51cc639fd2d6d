"""The report on dead letters: the same error once, by reason, type and time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from ackwise import connect
from ackwise.core.errors import BadInput, UnknownQueue
from ackwise.spark.jobs import dead_letter_report
from ackwise.spark.jobs.dead_letter_report import By, counted, summarised
from ackwise.spark.jobs.tables import collected
from ackwise.spark.reports.summaries import step_for
from tests.spark.jobs.frames import Row, at, frame

FIRST = at("2030-01-31T12:00:00")


def letter(number: int, error: str, after: timedelta = timedelta(), **more: object) -> Row:
    return {
        "id": f"id-{number}",
        "queue": "orders",
        "consumer_group": "billing",
        "reason": "retry_limit",
        "error_type": "LookupError",
        "error_message": error,
        "moved_to_dlq_at": FIRST + after,
        "payload": f'{{"n": {number}}}',
        **more,
    }


def fail_some(url: str) -> None:
    """Five dead letters of three kinds in two queues."""
    with connect(url) as queue:
        queue.push_many("orders", [{"id": number} for number in range(4)])
        batch = queue.claim("orders", group="billing", max=4)
        for number, delivery in enumerate(batch[:3]):
            delivery.reject(f"order {number} not found")
        batch[3].reject(ValueError("'amount'"))
        queue.push("mail", {"to": "a@b.example"})
        queue.claim("mail")[0].reject("mailbox a@b.example is full")


def test_rows_of_a_store(spark: SparkSession, any_url: str) -> None:
    fail_some(any_url)
    rows = collected(dead_letter_report(spark, any_url))
    assert [list(row) for row in rows] == 3 * [["queue", "group", "reason", "error", "count", "first_at", "last_at"]]
    assert [(row["queue"], row["group"], row["reason"], row["error"], row["count"]) for row in rows] == [
        ("orders", "billing", "rejected", "order <n> not found", 3),
        ("mail", "__QUEUE_MODE__", "rejected", "mailbox <email> is full", 1),
        ("orders", "billing", "rejected", "'amount'", 1),
    ]
    with connect(any_url) as queue:
        times = [one.dead_at for one in queue.dead_letters("orders") if "not found" in one.error]
    assert (rows[0]["first_at"], rows[0]["last_at"]) == (min(times), max(times))


def test_dead_letter_report_is_filtered_by_queue_and_group(spark: SparkSession, url: str) -> None:
    fail_some(url)
    assert dead_letter_report(spark, url, "mail").count() == 1
    assert {row.group for row in dead_letter_report(spark, url, group="billing").collect()} == {"billing"}
    assert dead_letter_report(spark, url, "orders", "nobody").count() == 0
    with pytest.raises(UnknownQueue, match="nowhere"):
        dead_letter_report(spark, url, "nowhere")


def test_groups_and_reasons_are_apart(spark: SparkSession) -> None:
    letters = frame(
        spark,
        "dead_letters",
        [
            letter(1, "late by 3 s"),
            letter(2, "late by 4 s", consumer_group="shipping"),
            letter(3, "late by 5 s", reason="rejected"),
            letter(4, "late by 6 s", timedelta(hours=1), error_type="ValueError"),
        ],
    )
    assert [(row["group"], row["reason"], row["count"]) for row in collected(counted(letters))] == [
        ("billing", "retry_limit", 2),
        ("billing", "rejected", 1),
        ("shipping", "retry_limit", 1),
    ]
    by_type = collected(counted(letters, "error_type"))
    assert [(row["group"], row["error_type"], row["count"]) for row in by_type] == [
        ("billing", "LookupError", 2),
        ("billing", "ValueError", 1),
        ("shipping", "LookupError", 1),
    ]
    assert (by_type[1]["first_at"], by_type[1]["last_at"]) == 2 * (FIRST + timedelta(hours=1),)


@pytest.mark.parametrize(
    ("seconds", "step"), [(0, 1), (40, 1), (40 * 60, 60), (40 * 3600, 3600), (40 * 86_400, 86_400), (1e9, 7 * 86_400)]
)
def test_steps_of_time_suit_the_range(seconds: float, step: int) -> None:
    assert step_for(seconds) == step


def test_summary_groups_errors_and_times(spark: SparkSession) -> None:
    letters = [letter(1, "no 1"), letter(2, "no 2", timedelta(minutes=40.5)), letter(3, "other")]
    summary = summarised(frame(spark, "dead_letters", letters), FIRST)
    assert (summary.total, summary.step) == (3, 60)
    assert [(row["at"], row["count"]) for row in summary.times] == [(FIRST, 2), (FIRST + timedelta(minutes=40), 1)]
    first, second = summary.errors
    # The newest of its kind is the example.
    assert (first["error"], first["example"]["id"], first["example"]["payload"]) == ("no <n>", "id-2", '{"n": 2}')
    assert second["example"]["error_message"] == "other"


def test_misspelt_by_is_refused(spark: SparkSession) -> None:
    wrong: By = "errors"  # type: ignore[assignment]
    with pytest.raises(BadInput, match="by must be one of error, reason, error_type, time"):
        counted(frame(spark, "dead_letters", []), wrong)
