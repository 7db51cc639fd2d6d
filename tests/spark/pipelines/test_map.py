"""`.map`: a plain function per record, and what becomes of each."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ackwise import Reject, Retry
from ackwise.core.messages import NewMessage
from ackwise.core.queries import Browse
from ackwise.spark import pipeline
from ackwise.spark.pipelines.record_handler import Record
from tests.spark.queue_harness import QueueHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = (
    "exits",
    "segfaults",
    "hogs",
    "killed",
    "raises",
    "mistyped",
    "leaves",
    "rejects",
    "later",
    "twice",
    "nothing",
    "three",
    "none of many",
)
CHARGED = {
    "exits": ("WorkerDied", "the process that ran it died: exit code 3"),
    "segfaults": ("WorkerDied", "the process that ran it died: signal 11 (SIGSEGV)"),
    "hogs": ("MemoryError", ""),
    "killed": ("WorkerDied", "the process that ran it died: signal 9 (SIGKILL)"),
    "raises": ("ValueError", "order 4 is bad"),
    "mistyped": ("WrongType", "the function returned {'n': 'five', 'attempt': 1}, which is not"),
    "leaves": ("SystemExit", "SystemExit: 4"),
}
"""They fail at every attempt, and what is said of them then."""


def behaves(order: dict[str, Any], record: Record) -> Any:
    """As the order asks for."""
    output = {"n": order["n"], "attempt": record.attempt}
    match order.get("kind"):
        case "exits":
            os._exit(3)
        case "segfaults":
            ctypes.string_at(0)
        case "hogs":
            limits = resource.getrlimit(resource.RLIMIT_AS)
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + 200_000_000, limits[1]))
            try:
                return {"n": len(bytes(1 << 40)), "attempt": 0}
            finally:
                resource.setrlimit(resource.RLIMIT_AS, limits)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raises":
            raise ValueError(f"order {order['n']} is bad")
        case "mistyped":
            return {"n": "five", "attempt": 1}
        case "leaves":
            sys.exit(4)
        case "rejects":
            raise Reject("never")
        case "later" if record.attempt == 1:
            raise Retry(delay=0.3, error="busy")
        case "twice" if record.attempt == 1:
            raise OSError("gone")
        case "nothing":
            return None
        case "three":
            return [output] * 3
        case "none of many":
            return []
    return output


def test_every_record_ends_as_its_function_says(spark: SparkSession, harness: QueueHarness) -> None:
    """A failing record is charged alone: all others are delivered once."""
    harness.configure(retry_limit=3)
    kinds = [{"n": n, "kind": kind} for n, kind in enumerate(KINDS)]
    plain = [{"n": n} for n in range(len(KINDS), 300)]
    orders = [json.dumps(one).encode() for one in (*plain[:80], *kinds, *plain[80:])]
    harness.send(
        [NewMessage(one, f"p{at % 3}", transaction_id=f"t{json.loads(one)['n']}") for at, one in enumerate(orders)]
    )
    harness.send([NewMessage(b'"no order"', transaction_id="text"), NewMessage(b'{"n": 1.5}', transaction_id="half")])
    harness.send([NewMessage(b'{"n": 1000}', transaction_id="scheduled", delay=500_000)])
    totals = (
        pipeline(spark, harness.url)
        .consume("q", "g", schema="n long not null, kind string", max_rows=200)
        .map(behaves, returns="n long, attempt int")
        .produce("out")
        .run()
    )

    dead = {letter.transaction_id: letter for letter in harness.dead()}
    assert set(dead) == {"text", "half", "t7", *(f"t{KINDS.index(kind)}" for kind in CHARGED)}
    for kind, (error_type, error) in CHARGED.items():
        letter = dead[f"t{KINDS.index(kind)}"]
        assert (letter.reason, letter.failures, letter.deliveries) == ("retry_limit", 3, 3), kind
        assert letter.error_type == error_type
        assert letter.error.startswith(error)
    assert (dead["t7"].reason, dead["t7"].error, dead["t7"].failures) == ("rejected", "never", 0)
    for name in ("text", "half"):
        assert (dead[name].reason, dead[name].failures) == ("undecodable", 0)
        assert dead[name].error.startswith("the payload does not fit: ")

    outputs = Counter((one["n"], one["attempt"]) for one in map(json.loads, harness.payloads("out")))
    expected = Counter({(n, 1): 1 for n in range(len(KINDS), 300)})
    expected += Counter({(1000, 1): 1, (KINDS.index("three"), 1): 3})
    expected += Counter({(KINDS.index(kind), 2): 1 for kind in ("later", "twice")})
    assert outputs == expected
    assert harness.counts() == {"acked": 303 - len(dead), "dead": len(dead)}
    assert (totals.acked, totals.dead, totals.stale, totals.already) == (303 - len(dead), len(dead), 0, 0)
    assert totals.retried == 2 * len(CHARGED) + 2
    assert totals.rows == 303 + totals.retried
    assert totals.outputs == sum(outputs.values())


def test_record_that_takes_too_long(spark: SparkSession, local_harness: QueueHarness) -> None:
    local_harness.configure(retry_limit=1)
    local_harness.number(3)

    def sleeps(order: dict[str, Any]) -> None:
        if order["n"] == 1:
            time.sleep(3600)

    one = pipeline(spark, local_harness.url).consume("q", "g", max_partitions=1).map(sleeps, timeout=5)
    one.run()
    letter = next(letter for letter in local_harness.dead() if letter.transaction_id == "t1")
    assert (letter.error_type, letter.error) == ("TimeoutError", "it took longer than 5 seconds")
    assert local_harness.group().lag == 0


def test_outputs_stay_in_their_partition_and_name_their_record(
    spark: SparkSession, local_harness: QueueHarness
) -> None:
    for partition in ("a", "b"):
        local_harness.number(20, partition=partition)
    one = pipeline(spark, local_harness.url).consume("q", "g").map(lambda order: [order, order]).produce("out")
    assert one.run().outputs == 80
    inputs = {found.message.id: found.partition for found in local_harness.ask(Browse(queue="q", limit=100))}
    for found in local_harness.ask(Browse(queue="out", limit=100)):
        group, message_id, at = found.message.transaction_id.split(":")
        assert (group, at in ("0", "1"), found.partition) == ("g", True, inputs[message_id])


def test_pipeline_without_a_function_passes_records_through(spark: SparkSession, local_harness: QueueHarness) -> None:
    """Each with the schema of its own pipeline, though Spark's workers are the same."""
    local_harness.number(5)
    local_harness.send([NewMessage(b'{"s": "x"}')])
    for group, schema, dead in (("one", "n long not null", 1), ("two", "s string not null", 5), ("three", None, 0)):
        some = pipeline(spark, local_harness.url).consume("q", group, schema=schema).produce(f"out-{group}")
        totals = some.run()
        assert (totals.acked, totals.dead) == (6 - dead, dead), group
    assert local_harness.payloads("out-two") == [b'{"s":"x"}']


def test_files_and_a_queue_at_once(spark: SparkSession, local_harness: QueueHarness, tmp_path: Path) -> None:
    local_harness.configure(retry_limit=2)
    local_harness.number(40)

    def some(order: dict[str, Any]) -> Any:
        if order["n"] % 10 == 0:
            raise ValueError("no")
        return [{"n": order["n"], "half": order["n"] / 2}] * (order["n"] % 3)

    totals = (
        pipeline(spark, local_harness.url)
        .consume("q", "g", max_rows=25)
        .map(some, returns="n long, half double")
        .produce("out")
        .write("parquet", str(tmp_path / "files"))
        .run()
    )
    expected = sorted(n for n in range(40) if n % 10 for _ in range(n % 3))
    written = spark.read.parquet(str(tmp_path / "files"))
    assert sorted(row["n"] for row in written.collect()) == expected
    assert written.filter("half <> n / 2").count() == 0
    assert sorted(json.loads(one)["n"] for one in local_harness.payloads("out")) == expected
    assert (totals.acked, totals.dead, totals.outputs) == (36, 4, len(expected))


def test_dead_worker_costs_no_record_a_failure(
    spark: SparkSession, local_harness: QueueHarness, tmp_path: Path
) -> None:
    """Not the function's process but Spark's own: the task is run again, without what was settled."""
    local_harness.configure(retry_limit=1)
    local_harness.number(5000)
    killed = tmp_path / "killed"

    def kills_sparks_worker_once(order: dict[str, Any], record: Record) -> dict[str, int]:
        if order["n"] == 4321 and not killed.exists():
            killed.touch()
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(3600)
        return {"n": order["n"], "attempt": record.attempt}

    totals = (
        pipeline(spark, local_harness.url)
        .consume("q", "g", max_partitions=1)
        .map(kills_sparks_worker_once, returns="n long, attempt int")
        .produce("out")
        .run()
    )
    assert killed.exists()
    assert local_harness.counts() == {"acked": 5000}
    outputs = [json.loads(one) for one in local_harness.payloads("out")]
    assert sorted(one["n"] for one in outputs) == list(range(5000))
    assert totals.dead == 0
