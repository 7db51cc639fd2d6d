"""A record that kills the process which works on it: it alone is charged, and dead after the limit."""

from __future__ import annotations

import ctypes
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ackwise.core import queries as q
from ackwise.spark import pipeline
from ackwise.spark.pipelines import Totals
from tests.spark import queue_harness
from tests.spark.queue_harness import QueueHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 5000
LIMIT = 3

url, local_url = queue_harness.url, queue_harness.local_url


@pytest.fixture
def harness(url: str) -> Iterator[QueueHarness]:
    yield from records(url)


@pytest.fixture
def local_harness(local_url: str) -> Iterator[QueueHarness]:
    yield from records(local_url)


def records(at: str) -> Iterator[QueueHarness]:
    made = QueueHarness(at)
    made.configure(retry_limit=LIMIT)
    made.number(COUNT)
    yield made
    made.close()


def run(spark: SparkSession, harness: QueueHarness, function: Callable[[dict[str, Any]], Any]) -> Totals:
    return pipeline(spark, harness.url).consume("q", "g").map(function, returns="n long").produce("out").run()


def check(harness: QueueHarness, totals: Totals, culprits: dict[int, str]) -> None:
    """No other record has a failure, no task ran twice, and the culprits are dead letters with their reason."""
    good, bad = COUNT - len(culprits), len(culprits)
    assert harness.counts() == {"acked": good, "dead": bad}
    assert ledger(harness) == {"acked": good, "retried": (LIMIT - 1) * bad, "dead": bad}
    # A task that failed would not have told what it had settled.
    assert totals == Totals(
        batches=LIMIT,
        rows=good + LIMIT * bad,
        acked=good,
        retried=(LIMIT - 1) * bad,
        dead=bad,
        outputs=good,
    )
    letters = {msgspec.json.decode(letter.payload)["n"]: letter for letter in harness.dead()}
    assert {n: f"{letter.error_type}: {letter.error}" for n, letter in letters.items()} == {
        n: f"WorkerDied: the process that ran it died: {how}" for n, how in culprits.items()
    }
    for letter in letters.values():
        assert (letter.reason, letter.failures, letter.deliveries) == ("retry_limit", LIMIT, LIMIT)
        assert len(letter.history) == LIMIT
    made = [msgspec.json.decode(payload)["n"] for payload in harness.payloads("out")]
    assert sorted(made) == [n for n in range(COUNT) if n not in culprits]


def ledger(harness: QueueHarness) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in harness.ask(q.ReadLedger(queue="q", group="g")):
        found[row.outcome] += row.count
    return dict(found)


def test_record_that_exits_among_five_thousand_dies_alone(spark: SparkSession, harness: QueueHarness) -> None:
    def function(record: dict[str, Any]) -> dict[str, Any]:
        # It is the first of a chunk, while the chunk before is being settled.
        if record["n"] == 1000:
            os._exit(3)
        return record

    totals = run(spark, harness, function)
    check(harness, totals, {1000: "exit code 3"})


def test_record_that_kills_its_process_dies_alone(spark: SparkSession, local_harness: QueueHarness) -> None:
    def function(record: dict[str, Any]) -> dict[str, Any]:
        match record["n"]:
            case 0 | 1 | 2499:
                os._exit(record["n"] % 256)
            case 1500:
                ctypes.string_at(0)
            case 3500:
                os.kill(os.getpid(), signal.SIGKILL)
            case 4999:
                os.abort()
        return record

    totals = run(spark, local_harness, function)
    signals = {1500: signal.SIGSEGV, 3500: signal.SIGKILL, 4999: signal.SIGABRT}
    culprits = {n: f"signal {how.value} ({how.name})" for n, how in signals.items()}
    check(local_harness, totals, culprits | {n: f"exit code {n % 256}" for n in (0, 1, 2499)})
