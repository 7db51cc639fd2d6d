"""The cost of logs and metrics: the same pushes and claims with and without them, in turns, in one run.

The embedded store is measured in this process, with listeners as `ackwise serve` has them. The server is measured
through sockets: two servers take turns, and one of them has no listeners.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx2

from ackwise.broker import Broker
from ackwise.connect import open_store
from ackwise.core.commands import ByLease, Claim, Push, Settle, Settlement
from ackwise.core.ids import lease_id
from ackwise.core.messages import PlainBatch
from ackwise.core.settlement import Outcome
from ackwise.observability.event_buffer import EventBuffer
from ackwise.observability.event_counts import EventCounts
from ackwise.observability.event_log import EventLog
from ackwise.observability.log_setup import set_up_logs
from benchmarks.process import cpu_seconds
from benchmarks.report import Report
from benchmarks.timing import rates

PAYLOAD = b'"' + b"x" * 188 + b'"'
SIZES = {1: (100, ">= 0.95"), 100: (20, ">= 0.97")}
"""Batches of a round and the aim, by the size of a batch."""
ROUNDS = 41
SERVER_ROUNDS = 21
SILENT, LOUD = "without logs and metrics", "with logs and metrics"
_SERVER = """
import sys
from ackwise.server import observer
if sys.argv.pop(1) == "silent":
    class Silent(observer.Observer):
        def __init__(self, store, settings):
            super().__init__(store, settings)
            self.stop_listening()
    from ackwise.server import server
    server.Observer = Silent
from ackwise.cli import main
sys.argv[0] = "ackwise"
main()
"""


def everything(report: Report, folder: Path) -> None:
    embedded(report, folder)
    served(report, folder)


def embedded(report: Report, folder: Path) -> None:
    for batch, (batches, aim) in SIZES.items():
        url = f"sqlite:///{folder}/observed-{batch}.db?durability=full"
        for name, (silent, loud) in measure(url, batch, batches).items():
            add(report, f"logs and metrics, embedded, {name} of {batch}", silent, loud, aim)


def add(report: Report, table: str, silent: float, loud: float, aim: str) -> None:
    report.add(table, SILENT, silent)
    report.add(table, LOUD, loud, versus=SILENT, base=silent, aim=aim)


def measure(url: str, batch: int, batches: int) -> dict[str, tuple[float, float]]:
    """Messages per second without and with listeners, of a push and of a claim with its ack."""
    store = open_store(url)
    broker = Broker(store, background=False)
    handler = set_up_logs(["info"], "json", io.StringIO())
    command = Push(queue="observed", messages=PlainBatch([PAYLOAD] * batch))

    def push() -> int:
        for _ in range(batches):
            broker.send(command)
        return batch * batches

    def claim() -> int:
        for _ in range(batches):
            claimed = broker.send(Claim(queue="observed", most=batch))
            selector = ByLease(lease_id(claimed.lease_no, claimed.tag))
            broker.send(Settle(entries=[Settlement(selector=selector, outcome=Outcome.ACK)]))
        return batch * batches

    def observed(job: Callable[[], int]) -> Callable[[], int]:
        def run() -> int:
            events, log = EventBuffer(store.events, store.clock.now), EventLog(store.clock.now)
            events.add(log.add)
            events.add(EventCounts(store.clock.now).add)
            events.on_first = handler.ask_sources
            leave = handler.add_source(events.flush_and_count)
            try:
                return job()
            finally:
                events.close()
                log.close()
                leave()

        return run

    push()
    # In both orders: the second job of a pair finds the log longer and the machine warmer.
    first, second, third, fourth = rates(ROUNDS, push, observed(push), observed(push), push)
    claims = rates(ROUNDS // 2, claim, observed(claim), observed(claim), claim)
    broker.close()
    handler.close()
    return {
        "push": ((first + fourth) / 2, (second + third) / 2),
        "claim and ack": ((claims[0] + claims[3]) / 2, (claims[1] + claims[2]) / 2),
    }


class Served:
    """A running server: its client, its CPU time and the messages that its jobs moved."""

    def __init__(self, http: httpx2.Client, pid: int) -> None:
        self.http, self._pid = http, pid
        self.cpu, self.messages = 0.0, 0

    def run(self, job: Callable[[httpx2.Client], int]) -> int:
        before = cpu_seconds(self._pid)
        count = job(self.http)
        self.cpu += cpu_seconds(self._pid) - before
        self.messages += count
        return count

    def take_micros(self) -> float:
        """CPU time per message in microseconds, since the last call."""
        micros = self.cpu / self.messages * 1e6
        self.cpu, self.messages = 0.0, 0
        return micros


@contextmanager
def server(folder: Path, mode: str) -> Iterator[Served]:
    """A server with its log in a file."""
    command = [sys.executable, "-c", _SERVER, mode, "serve", "--port", "0"]
    environment = {**os.environ, "ACKWISE_STORE": f"sqlite:///{folder}/observed-{mode}.db"}
    with (folder / f"observed-{mode}.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("ready ").strip()
            with httpx2.Client(base_url=url, timeout=60) as http:
                yield Served(http, process.pid)
        finally:
            process.terminate()
            process.communicate(timeout=60)


def push_job(queue: str, batch: int, batches: int) -> Callable[[httpx2.Client], int]:
    body = {"queue": queue, "messages": [{"payload": "x" * 188}] * batch}

    def push(http: httpx2.Client) -> int:
        for _ in range(batches):
            http.post("/v1/push", json=body).raise_for_status()
        return batch * batches

    return push


def claim_job(queue: str, batch: int, batches: int) -> Callable[[httpx2.Client], int]:
    body = {"queue": queue, "max": batch, "auto_ack": True}

    def claim(http: httpx2.Client) -> int:
        for _ in range(batches):
            http.post("/v1/claim", json=body).raise_for_status()
        return batch * batches

    return claim


def served(report: Report, folder: Path) -> None:
    """Messages per second, and CPU time of the server per message, which other work on the machine disturbs less."""
    with server(folder, "silent") as silent, server(folder, "loud") as loud:
        for batch, (batches, aim) in SIZES.items():
            queue = f"observed-{batch}"
            jobs = {"push": push_job(queue, batch, batches), "claim": claim_job(queue, batch, batches)}
            for name, job in jobs.items():
                turns = [partial(side.run, job) for side in (silent, loud, loud, silent)]
                first, second, third, fourth = rates(SERVER_ROUNDS, *turns)
                table = f"logs and metrics, server, {name} of {batch}"
                add(report, table, (first + fourth) / 2, (second + third) / 2, aim)
                base, cost = silent.take_micros(), loud.take_micros()
                most = f"<= {2 - float(aim.split()[1]):.2f}"
                report.add(table, f"{SILENT}, CPU", base, "us/msg", metric="cpu")
                report.add(table, f"{LOUD}, CPU", cost, "us/msg", metric="cpu", versus=SILENT, base=base, aim=most)
