"""Starting and stopping pipelines, and whose turn it is."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ackwise.core import commands as c
from ackwise.core.errors import AckwiseError, BadInput, Conflict, StoreUnavailable, UnknownQueue
from ackwise.spark import pipeline
from ackwise.spark.pipelines import Pipeline
from ackwise.spark.pipelines.query import PipelineFailed
from ackwise.spark.pipelines.record_handler import Record
from tests.spark.queue_harness import QueueHarness, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def same(order: dict[str, Any]) -> dict[str, Any]:
    return order


def billing(spark: SparkSession, harness: QueueHarness, group: str = "g", **more: Any) -> Pipeline:
    return pipeline(spark, harness.url).consume("q", group, **more).map(same, returns="n long").produce("out")


def test_started_pipeline_continues_from_its_checkpoint(
    spark: SparkSession, local_harness: QueueHarness, tmp_path: Path
) -> None:
    local_harness.number(30)
    checkpoint = str(tmp_path / "checkpoint")
    running = billing(spark, local_harness, max_rows=20).start(checkpoint)
    until(lambda: running.lag() == 0)
    local_harness.number(10, first=30)
    until(lambda: running.lag() == 0)
    running.stop()
    assert (running.totals.acked, running.totals.outputs) == (40, 40)
    assert b'ackwise_pipeline_settled_total{group="g",outcome="acked",queue="q"} 40.0' in running.metrics()
    assert local_harness.leases() == []
    assert running.await_termination()
    local_harness.number(10, first=40)
    assert billing(spark, local_harness).run(checkpoint).acked == 10
    assert len(local_harness.payloads("out")) == 50
    names = {str(lease.key).partition("/")[0] for lease in local_harness.leases(live_only=False)}
    assert names == {"g"}
    assert billing(spark, local_harness).run(checkpoint).batches == 0


def sources(spark: SparkSession) -> list[int]:
    """The Python processes in which sources live, beside the driver."""
    driver = str(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == driver and b"python_streaming_source_runner" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def test_error_that_ends_it_is_raised_to_the_waiter(
    spark: SparkSession, local_harness: QueueHarness, tmp_path: Path
) -> None:
    """Also when it had no last words; and what it held is free at once."""
    local_harness.number(5)
    others = sources(spark)
    running = billing(spark, local_harness).start(str(tmp_path / "checkpoint"))
    until(lambda: running.lag() == 0)
    assert not running.await_termination(0.01)
    (source,) = set(sources(spark)) - set(others)
    os.kill(source, signal.SIGKILL)
    with pytest.raises(PipelineFailed, match=r"terminated with exception: the process of its source died$"):
        running.await_termination(60)
    assert local_harness.leases() == []
    assert running.totals.acked == 5


@pytest.mark.parametrize("how", ["map", "transform"])
def test_lease_that_is_lost_in_the_middle_of_a_batch(
    spark: SparkSession, local_harness: QueueHarness, tmp_path: Path, how: str
) -> None:
    """What was worked on under it is not settled, pushes nothing, and comes again."""
    local_harness.number(20)
    began, go = tmp_path / "began", tmp_path / "go"

    def waits(order: dict[str, Any]) -> dict[str, Any]:
        began.touch()
        while not go.exists():
            time.sleep(0.01)
        return order

    def waits_in_a_column(rows: DataFrame) -> DataFrame:
        from pyspark.sql.functions import udf

        waited = udf(lambda n: waits({"n": n})["n"], "long")
        return rows.select("delivery_id", waited("n").alias("n"))

    def lose() -> None:
        try:
            until(began.exists)
            local_harness.expire()
        finally:
            go.touch()

    losing = threading.Thread(target=lose)
    losing.start()
    steps = pipeline(spark, local_harness.url).consume("q", "g", schema="n long" if how == "transform" else None)
    steps = steps.transform(waits_in_a_column) if how == "transform" else steps.map(waits, returns="n long")
    totals = steps.produce("out").run(str(tmp_path / "checkpoint"))
    losing.join()
    assert (totals.acked, totals.stale, totals.outputs, totals.dead) == (20, 20, 20, 0)
    assert local_harness.counts() == {"acked": 20}
    assert len(local_harness.payloads("out")) == 20


def test_restart_from_checkpoint_takes_over_at_once(
    spark: SparkSession, local_harness: QueueHarness, tmp_path: Path
) -> None:
    """The one before died in the middle of a batch, with a lease that has minutes to go."""
    local_harness.number(30)
    checkpoint = str(tmp_path / "checkpoint")

    def hangs_at_first(order: dict[str, Any], record: Record) -> dict[str, Any]:
        while order["n"] == 25 and record.attempt == 1:
            time.sleep(0.01)
        return order

    one = pipeline(spark, local_harness.url).consume("q", "g").map(hangs_at_first, returns="n long").produce("out")
    running = one.start(checkpoint)
    until(lambda: local_harness.counts() == {"acked": 15, "held": 15})  # the other task is done
    with pytest.raises(PipelineFailed, match=r"^the pipeline failed: option claimName: 'g' is in use by another query"):
        one.run(str(tmp_path / "another"))
    running.query.stop()
    assert one.run(checkpoint).acked == 15
    assert local_harness.counts() == {"acked": 30}
    assert len(local_harness.payloads("out")) == 30
    running.stop()


def test_late_stop_does_not_touch_leases_of_successor(
    spark: SparkSession, local_harness: QueueHarness, tmp_path: Path
) -> None:
    local_harness.number(10)
    checkpoint, gate = str(tmp_path / "checkpoint"), tmp_path / "gate"

    def waits(order: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / f"{time.monotonic_ns()}.came").touch()
        while not gate.exists():
            time.sleep(0.01)
        return order

    one = pipeline(spark, local_harness.url).consume("q", "g").map(waits, returns="n long").produce("out")
    dead = one.start(checkpoint)
    until(lambda: local_harness.counts() == {"held": 10})
    dead.query.stop()
    came = len(list(tmp_path.glob("*.came")))
    living = one.start(checkpoint)
    until(lambda: len(list(tmp_path.glob("*.came"))) > came)
    dead.stop()
    assert [one.held for one in local_harness.leases()] == [10]
    gate.touch()
    until(lambda: living.lag() == 0)
    living.stop()
    assert (living.totals.acked, living.totals.stale) == (10, 0)


def test_second_run_of_a_group_repeats_nothing(spark: SparkSession, local_harness: QueueHarness) -> None:
    """A group with a slash in its name, without a checkpoint, twice; then another group."""
    local_harness.number(5)
    assert billing(spark, local_harness, "team/billing").run().acked == 5
    assert billing(spark, local_harness, "team/billing").run().rows == 0
    assert billing(spark, local_harness, "other").run().outputs == 5
    assert len(local_harness.payloads("out")) == 10


def test_group_that_begins_later(spark: SparkSession, local_harness: QueueHarness) -> None:
    local_harness.number(5)
    assert billing(spark, local_harness, start="new").run().rows == 0
    local_harness.number(2, first=5)
    assert billing(spark, local_harness, start="new").run().rows == 2


def test_checkpoint_of_another_pipeline(spark: SparkSession, local_harness: QueueHarness, tmp_path: Path) -> None:
    local_harness.number(1)
    local_harness.number(1, queue="other")
    checkpoint = str(tmp_path / "checkpoint")
    billing(spark, local_harness).run(checkpoint)
    with pytest.raises(Conflict, match=r"belongs to group 'g', and this pipeline has 'other'; give each pipeline"):
        billing(spark, local_harness, "other").run(checkpoint)
    other = pipeline(spark, local_harness.url).consume("other", "g").map(same)
    with pytest.raises(
        Conflict, match=r"^the checkpoint .*checkpoint belongs to queue 'q', and this pipeline has 'other'"
    ):
        other.run(checkpoint)
    assert local_harness.payloads("out") == [b'{"n":0}']


def test_queue_that_is_paused(spark: SparkSession, local_harness: QueueHarness) -> None:
    local_harness.number(3)
    local_harness.do(c.PauseQueue(queue="q"))
    with pytest.raises(Conflict, match="the queue 'q' is paused; resume it with: ackwise queue resume q"):
        billing(spark, local_harness).run()
    assert local_harness.counts() == {"unread": 3}


def test_files_that_cannot_be_written(spark: SparkSession, local_harness: QueueHarness, tmp_path: Path) -> None:
    local_harness.number(3)
    one = pipeline(spark, local_harness.url).consume("q", "g").map(same, returns="n long")
    with pytest.raises(AckwiseError, match=r"^the pipeline failed: .*nonsense") as caught:
        one.write("nonsense", str(tmp_path / "files")).run()
    assert "\n" not in str(caught.value)
    assert local_harness.leases() == []
    assert sum(local_harness.counts().values()) == local_harness.counts().get("unread", 0) + local_harness.counts().get(
        "held", 0
    )


@pytest.mark.usefixtures("short_hello")
def test_missing_queue_or_store_is_refused(spark: SparkSession, local_harness: QueueHarness) -> None:
    local_harness.configure()
    with pytest.raises(UnknownQueue, match="'nowhere'"):
        pipeline(spark, local_harness.url).consume("nowhere", "g").map(same).run()
    with pytest.raises(StoreUnavailable, match=r"no server answers at http://127\.0\.0\.1:9"):
        pipeline(spark, "http://127.0.0.1:9").consume("q", "g").map(same).run()
    with pytest.raises(StoreUnavailable, match="/nowhere/at does not exist"):
        pipeline(spark, "sqlite:////nowhere/at/all.db").consume("q", "g").map(same).run()


async def later(order: Any) -> None:
    """No caller awaits it."""


def test_invalid_pipeline_options_are_refused(spark: SparkSession, local_harness: QueueHarness) -> None:
    local_harness.number(1)
    start = pipeline(spark, local_harness.url)
    one = start.consume("q", "g")
    for wrong, told in (
        (lambda: pipeline(spark, None), "the url must be a string, not NoneType"),  # type: ignore[arg-type]
        (lambda: start.consume("", "g"), "queue must not be empty"),
        (lambda: start.consume("q", "x" * 300), "group is longer than 255 characters"),
        (lambda: start.consume("q", "g", max_rows=0), "max_rows must be between 1"),
        (lambda: start.consume("q", "g", lease=0), "lease must be between"),
        (lambda: start.consume("q", "g", schema="n longg"), "schema is not a schema such as"),
        (lambda: start.consume("q", "g", schema="m map<int, int>"), "schema: map<int,int>: the keys of a JSON object"),
        (lambda: one.map(7), ".map takes a function, not int"),  # type: ignore[arg-type]
        (lambda: one.map(later), ".map takes a plain function; an async one would never be awaited"),
        (lambda: one.map(same, returns="n"), "returns is not a schema such as"),
        (lambda: one.map(same, timeout=-1), "timeout must be between"),
        (lambda: one.map(same).produce("q").run(), "run would never end: it produces into 'q', which it consumes"),
        (lambda: one.map(same).map(same), "a pipeline has one .map or .transform"),
        (lambda: one.map(same).transform(lambda rows: rows), "a pipeline has one .map or .transform"),
        (lambda: one.transform(), ".transform takes functions"),
        (lambda: one.transform("n > 1"), ".transform takes functions"),  # type: ignore[arg-type]
        (lambda: one.produce(""), "queue must not be empty"),
        (lambda: one.start(""), "start(checkpoint): pass the folder"),
        (lambda: start.consume("q", "g", start="earliest").run(), "start must be an ISO time"),
        (lambda: start.consume("q", "g", claim_name="a/b").run(), "claimName is 'a/b': it must not contain a slash"),
        (lambda: start.consume("q", "g", max_partitions=-1).run(), "max_partitions must be between 1"),
    ):
        with pytest.raises(AckwiseError) as caught:
            wrong()
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value, BadInput) or "bad_input" in str(caught.value), type(caught.value)
    assert local_harness.leases(live_only=False) == []
