"""Traces that go through Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import ackwise
from ackwise.spark import pipeline
from tests.server.running import Running
from tests.spark.pipelines.traced_function import SetUp
from tests.spark.queue_harness import QueueHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_one_trace_spans_http_delivery_and_a_spark_record(
    spark: SparkSession, local_harness: QueueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller pushes. A consumer handles the message over HTTP and pushes another one, which a pipeline handles."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider())
    with Running(local_harness.url) as server, ackwise.connect(server.url) as queue:
        with trace.get_tracer("test").start_as_current_span("caller") as caller:
            queue.push("first", {})
        with queue.claim("first")[0]:
            queue.push("q", {"n": 1})
    totals = pipeline(spark, local_harness.url).consume("q", "g").map(SetUp()).produce("out").run()
    assert totals.acked == 1
    with ackwise.connect(local_harness.url) as queue:
        (output,) = [delivery.json() for delivery in queue.claim("out", max=10)]
    wanted = f"{caller.get_span_context().trace_id:032x}"
    assert output["trace"] == wanted
    assert output["header"].split("-")[1] == wanted
