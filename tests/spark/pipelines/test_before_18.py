"""A checkpoint that the version before the new package layout wrote: the pipeline goes on from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ackwise.clock import ManualClock
from ackwise.spark import pipeline
from ackwise.spark.connections import close_task_connections
from tests.data.before_18.contents import BATCH, ORDERS, REFUSED, STARTED, bill, unpack
from tests.server.running import Running
from tests.spark.queue_harness import QueueHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def old_url(tmp_path: Path) -> Iterator[str]:
    """A server in front of the pipeline's store, one second after the driver was killed."""
    unpack("pipeline", tmp_path)
    with Running(f"sqlite:///{tmp_path}/pipeline.db?durability=normal", ManualClock(STARTED + 1_000_000)) as server:
        yield server.url
        close_task_connections()


def batches_in(checkpoint: Path, log: str) -> int:
    return len(list((checkpoint / log).glob("[0-9]*")))


def test_old_checkpoint_goes_on_in_its_second_batch(spark: SparkSession, old_url: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    assert batches_in(checkpoint, "offsets") == 2
    assert batches_in(checkpoint, "commits") == 1
    with closing(QueueHarness(old_url)) as harness:
        before = harness.group("billing", "orders")
        assert (before.acked, before.dead, before.leases) == (BATCH - 1, 1, 1)
        steps = pipeline(spark, old_url).consume("orders", "billing", max_rows=BATCH)
        totals = steps.map(bill, returns="order long, cents long").produce("invoices").run(str(checkpoint))
        assert (totals.acked, totals.dead, totals.stale) == (ORDERS - BATCH, 0, 0)
        assert harness.counts("billing", "orders") == {"acked": ORDERS - 1, "dead": 1}
        invoices = sorted(json.loads(payload)["order"] for payload in harness.payloads("invoices"))
        assert invoices == [number for number in range(ORDERS) if number != REFUSED]
    assert batches_in(checkpoint, "offsets") == 3
    # `run` stops the query when the last record is settled; Spark may not have noted that batch yet.
    assert batches_in(checkpoint, "commits") >= 2
