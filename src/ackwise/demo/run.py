"""The demo itself: one producer, four consumers, every result pushed in the same step as the ack of its order."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from ackwise.client import Batch, Connection
from ackwise.connect import connect
from ackwise.core.errors import LeaseLost, RolledBack
from ackwise.core.policy import Backoff
from ackwise.core.settlement import Verdict
from ackwise.demo.orders import bill, orders
from ackwise.demo.show import Progress, Report, print_report, write_html

QUEUE, RESULTS, GROUP = "orders", "invoices", "billing"
CONSUMERS = 4
BATCH = 500


def run(messages: int, seed: int, out: Path) -> Report:
    """Run it, show it, write the report; the last line printed is for programs."""
    with tempfile.TemporaryDirectory(prefix="ackwise-demo-") as folder, connect(f"sqlite:///{folder}/demo.db") as queue:
        queue.create_queue(QUEUE, retry_limit=3, backoff=Backoff(kind="fixed", seconds=0.1))
        queue.create_group(QUEUE, GROUP)
        started = time.perf_counter()
        demo = Demo(queue, messages)
        with ThreadPoolExecutor(CONSUMERS + 1) as threads:
            jobs = [threads.submit(demo.produce, seed), *(threads.submit(demo.consume) for _ in range(CONSUMERS))]
            try:
                demo.watch()
            finally:
                demo.done.set()
            for job in jobs:
                job.result()
        report = demo.report(time.perf_counter() - started)
    path = out / "report.html"
    write_html(report, path)
    print_report(report, path)
    summary = {"pushed": report.pushed, "acked": report.acked, "dead": report.dead, "outputs": report.outputs}
    print("DEMO " + json.dumps({**summary, "report": str(path)}, separators=(",", ":")), flush=True)
    return report


class Demo:
    """What the threads share."""

    def __init__(self, queue: Connection, messages: int) -> None:
        self.queue, self.messages = queue, messages
        self.pushed = 0
        self.verdicts: Counter[Verdict] = Counter()
        self._lock = threading.Lock()
        self.done = threading.Event()

    def produce(self, seed: int) -> None:
        items = orders(self.messages, seed)
        try:
            while not self.done.is_set() and (batch := list(islice(items, BATCH))):
                receipts = self.queue.push_many(QUEUE, batch)
                self.pushed += sum(receipt.status == "queued" for receipt in receipts)
        except BaseException:
            self.done.set()
            raise

    def consume(self) -> None:
        try:
            while not self.done.is_set():
                self._work(self.queue.claim(QUEUE, group=GROUP, max=BATCH, wait=0.25))
        except BaseException:
            self.done.set()
            raise

    def _work(self, batch: Batch) -> None:
        """Settle every order and push its invoice in one transaction: both happen or neither."""
        if not batch:
            return
        step = self.queue.transaction()
        for delivery in batch:
            try:
                invoice = bill(delivery)
            except Exception as problem:
                step.settle(delivery, problem)
            else:
                step.ack(delivery)
                step.push(RESULTS, invoice, partition=delivery.partition, transaction_id=delivery.transaction_id)
        try:
            self._count(Counter(answer.verdict for answer in step.commit().settled))
        except (LeaseLost, RolledBack):
            return  # The lease ran out: the orders are somebody else's now, and nothing of this was done.

    def _count(self, verdicts: Counter[Verdict]) -> None:
        with self._lock:
            self.verdicts += verdicts
            if self.finished >= self.messages:
                self.done.set()

    @property
    def finished(self) -> int:
        return self.verdicts[Verdict.ACKED] + self.verdicts[Verdict.DEAD]

    def watch(self) -> None:
        with Progress(self.messages) as progress:
            while not self.done.wait(0.1):
                progress.show(self.pushed, self.finished)
            progress.show(self.pushed, self.finished)

    def report(self, took: float) -> Report:
        stats = self.queue.stats(QUEUE)
        (group,) = stats.groups
        letters = self.queue.dead_letters(QUEUE, limit=max(1, stats.dead))
        errors = Counter((one.reason, one.error_type or "-", one.error, one.deliveries) for one in letters)
        return Report(
            seconds=took,
            pushed=stats.messages,
            acked=group.acked,
            dead=group.dead,
            retried=self.verdicts[Verdict.RETRIED],
            unfinished=group.lag,
            outputs=self.queue.stats(RESULTS).messages if group.acked else 0,
            partitions=stats.partitions,
            errors=[(*error, count) for error, count in errors.most_common()],
        )
