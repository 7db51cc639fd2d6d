"""Retries of a pipeline: the policy of its group, and what a waiting retry holds up."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import ackwise
from ackwise.core import commands as c
from ackwise.core.errors import BadInput
from ackwise.core.policy import NEW_QUEUE_POLICY, Backoff, GroupPolicy
from ackwise.spark import pipeline
from ackwise.spark.pipelines.plan import PIPELINE_POLICY
from ackwise.wire.store_url import parse
from tests.spark.queue_harness import QueueHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def pipeline_policy() -> None:
    """The policy that users get."""


def failing(order: dict[str, Any]) -> dict[str, Any]:
    if order["n"] == 0:
        raise ValueError("no such order")
    return order


def group_policy(harness: QueueHarness, group: str = "g") -> GroupPolicy:
    """The stored policy of a group of queue `q`."""
    with closing(sqlite3.connect(parse(harness.url).target)) as database:
        (text,) = database.execute("SELECT policy FROM grp WHERE name = ?", (group,)).fetchone()
    return msgspec.json.decode(text, type=GroupPolicy)


def test_poison_record_delays_a_run_by_seconds(spark: SparkSession, local_harness: QueueHarness) -> None:
    """The queue has the backoff of the native API, which would take minutes."""
    local_harness.configure(**msgspec.to_builtins(NEW_QUEUE_POLICY))
    local_harness.number(3)
    totals = pipeline(spark, local_harness.url).consume("q", "g").map(failing, returns="n long").produce("out").run()
    (letter,) = local_harness.dead()
    assert (totals.acked, totals.dead, letter.failures) == (2, 1, 3)
    with ackwise.connect(local_harness.url) as queue:
        assert queue.queue("out").policy["retry_limit"] == NEW_QUEUE_POLICY.retry_limit


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, PIPELINE_POLICY),
        ({"retry_limit": 5}, GroupPolicy(retry_limit=5, backoff=PIPELINE_POLICY.backoff)),
        ({"backoff": [1, 9]}, GroupPolicy(retry_limit=3, backoff=Backoff(kind="schedule", delays=(1.0, 9.0)))),
        ({"backoff": Backoff()}, GroupPolicy(retry_limit=3, backoff=Backoff())),
    ],
)
def test_new_group_gets_the_policy_of_the_pipeline(
    spark: SparkSession, local_harness: QueueHarness, options: dict[str, Any], expected: GroupPolicy
) -> None:
    local_harness.configure()
    pipeline(spark, local_harness.url).consume("q", "g", **options).map(failing).run()
    assert group_policy(local_harness) == expected


def test_existing_group_keeps_its_policy_unless_told(spark: SparkSession, local_harness: QueueHarness) -> None:
    local_harness.configure()
    local_harness.do(c.ConfigureGroup(queue="q", group="g"))
    pipeline(spark, local_harness.url).consume("q", "g").map(failing).run()
    assert group_policy(local_harness) == GroupPolicy()
    pipeline(spark, local_harness.url).consume("q", "g", retry_limit=1).map(failing).run()
    assert group_policy(local_harness) == GroupPolicy(retry_limit=1, backoff=PIPELINE_POLICY.backoff)


@pytest.mark.parametrize("options", [{"retry_limit": "3"}, {"retry_limit": -1}, {"backoff": [-1]}, {"backoff": ["x"]}])
def test_bad_retry_options_are_refused(
    spark: SparkSession, local_harness: QueueHarness, options: dict[str, Any]
) -> None:
    with pytest.raises(BadInput):
        pipeline(spark, local_harness.url).consume("q", "g", **options)
