"""Redriving what an expression chooses, no faster than asked for."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ackwise import connect
from ackwise.client import Connection
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.spark.jobs import redrive
from ackwise.spark.rate_limit import RateLimit, put_back


def fill(url: str, count: int = 6) -> None:
    """Dead letters whose errors count up."""
    with connect(url) as queue:
        queue.push_many("orders", [{"id": number} for number in range(count)])
        for number, delivery in enumerate(queue.claim("orders", group="billing", max=count)):
            delivery.reject(f"order {number} not found")


def lag(url: str) -> int:
    with connect(url) as queue:
        return queue.lag("orders", "billing")


def test_redrive_with_expression_returns_matching_letters(spark: SparkSession, any_url: str) -> None:
    fill(any_url)
    where = "error_message RLIKE 'order [135]' AND get_json_object(payload, '$.id') < 5 AND deliveries = 1"
    kinds = redrive(spark, any_url, where, dry_run=True).collect()
    assert [row.asDict() for row in kinds] == [
        {"queue": "orders", "group": "billing", "reason": "rejected", "error": "order <n> not found", "count": 2}
    ]
    assert lag(any_url) == 0
    told: list[tuple[int, int]] = []
    results = redrive(spark, any_url, where, progress=lambda *done: told.append(done)).collect()
    assert [row.result for row in results] == ["redriven", "redriven"]
    assert told == [(2, 2)]
    with connect(any_url) as queue:
        assert [one.json()["id"] for one in queue.claim("orders", group="billing", max=9)] == [1, 3]
        left = {letter.id for letter in queue.dead_letters("orders")}
    assert len(left) == 4
    assert left.isdisjoint(row.id for row in results)


def test_redrive_without_expression_returns_all_of_a_queue(spark: SparkSession, url: str) -> None:
    fill(url)
    assert redrive(spark, url, queue="orders").count() == 6
    assert lag(url) == 6
    assert redrive(spark, url, "true").collect() == []


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("erorr_message = 'x'", "erorr_message"),
        ("retry_count = ", "Syntax error"),
        ("retry_count", "not a boolean"),
        ("count(*) > 1", "WHERE"),
        ("true; drop table orders", "Syntax error"),
        ("CAST(error_message AS int) > 1", "cannot be cast"),
    ],
)
def test_expression_that_makes_no_sense_redrives_nothing(spark: SparkSession, url: str, where: str, said: str) -> None:
    fill(url, 2)
    with pytest.raises(BadInput) as refused:
        redrive(spark, url, where)
    assert refused.value.message.startswith(f"--where {where!r}: ")
    assert said in refused.value.message
    assert "\n" not in refused.value.message
    assert lag(url) == 0


class Time:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.done: list[tuple[float, int]] = []

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def note(self, done: int, total: int) -> None:
        self.done.append((round(self.now - 100.0, 6), done))


@pytest.mark.parametrize(
    ("rate", "pages"),
    [
        (None, [(0.0, 6)]),
        (8.0, [(0.0, 2), (0.25, 4), (0.5, 6)]),
        (0.5, [(0.0, 1), (2.0, 2), (4.0, 3), (6.0, 4), (8.0, 5), (10.0, 6)]),
        (1_000_000, [(0.0, 6)]),
    ],
)
def test_rate_is_kept(url: str, rate: float | None, pages: list[tuple[float, int]]) -> None:
    fill(url)
    time = Time()
    with connect(url) as queue:
        ids = [letter.id for letter in queue.dead_letters("orders")]
        results = put_back(queue, ids, RateLimit(rate, lambda: time.now, time.wait), time.note)
    assert results == dict.fromkeys(ids, "redriven")
    assert time.done == pages


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), 1e9])
def test_rate_that_is_none_is_refused(spark: SparkSession, url: str, rate: float) -> None:
    with pytest.raises(BadInput, match="rate"):
        redrive(spark, url, rate=rate)


def test_end_in_the_middle_says_how_far_it_came(queue: Connection, url: str) -> None:
    fill(url)
    ids = [letter.id for letter in queue.dead_letters("orders")]
    with pytest.raises(AckwiseError, match="2 of 6 dead letters were put back"):
        put_back(queue, ids, RateLimit(8.0, lambda: 0.0, lambda _: queue.close()))
    assert lag(url) == 2
