"""The cost of the event stream: pushes with a listener that counts every event, beside pushes without a listener."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ackwise.broker import Broker
from ackwise.connect import open_store
from ackwise.core.commands import Push
from ackwise.core.events import Event
from ackwise.core.messages import PlainBatch
from benchmarks.report import Report
from benchmarks.timing import rates

PAYLOAD = b'"' + b"x" * 188 + b'"'
SIZES = {1: 100, 100: 20, 1000: 5}
"""Batches of a round by their size."""
ROUNDS = 61
"""Many short rounds: the expected difference is smaller than the noise of one round."""


def everything(report: Report, folder: Path) -> None:
    """Durable pushes, and pushes without fsync, whose noise hides the cost of an event."""
    for durability in ("full", "normal"):
        for batch, batches in SIZES.items():
            url = f"sqlite:///{folder}/events-{durability}-{batch}.db?durability={durability}"
            silent, counted = measure(url, batch, batches)
            table = f"event stream, push of {batch}, durability {durability}"
            report.add(table, "no listener", silent)
            aim = ">= 0.98" if batch > 1 and durability == "full" else ""
            report.add(table, "a listener that counts every event", counted, versus="no listener", base=silent, aim=aim)


def measure(url: str, batch: int, batches: int) -> tuple[float, float]:
    """Messages per second without and with a listener."""
    store = open_store(url)
    broker = Broker(store, background=False)
    command = Push(queue="events", messages=PlainBatch([PAYLOAD] * batch))
    counts: Counter[str] = Counter()

    def count(event: Event) -> None:
        counts[type(event).__name__] += 1

    def push() -> int:
        for _ in range(batches):
            broker.send(command)
        return batch * batches

    def push_counted() -> int:
        unsubscribe = store.events.subscribe(count)
        try:
            return push()
        finally:
            unsubscribe()

    push()
    # In both orders: the second job of a pair finds the log longer and the machine warmer.
    first, second, third, fourth = rates(ROUNDS, push, push_counted, push_counted, push)
    broker.close()
    if counts["MessagesPushed"] != 2 * ROUNDS * batches:
        raise RuntimeError(f"the listener did not hear every push: {dict(counts)}")
    return (first + fourth) / 2, (second + third) / 2
