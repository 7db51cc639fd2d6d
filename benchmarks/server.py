"""Ackwise and other servers under the same load: push, pop and ack, durable before every answer.

One process makes the load for every server: the machine has two cores, one for a server and one for a client. It sends
requests that it has encoded before. For a peer with a Python client, the time of that client is part of the result. The
last table shows how much of a core the load process needed.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import acks, servers
from benchmarks.load.jobs import Beside, Done, Drain, Load, Push
from benchmarks.loader import Loader, loader
from benchmarks.process import most_resident_mb
from benchmarks.report import Report
from benchmarks.servers import Server

SQLITE, POSTGRES = "Ackwise on SQLite", "Ackwise on PostgreSQL"
REDIS, REDIS_PY = "Redis Streams", "Redis Streams through redis-py"
NATS, RABBIT, QUEEN = "NATS JetStream", "RabbitMQ quorum queue", "Queen"
ALL_SERVERS = (SQLITE, POSTGRES, REDIS, REDIS_PY, NATS, RABBIT, QUEEN)
ROUNDS = 3
SECONDS = 0.5
"""About how long one measurement takes: a first, small one says how many messages that is."""
MOST_MB = 150
RUN = os.urandom(3).hex()
"""In the names of queues: a Queen server that was given has been there before."""


@dataclass(frozen=True)
class Workload:
    title: str
    connections: int
    batch: int
    first: int


WORKLOADS = (
    Workload("server, batches of 100, 16 connections, 1 load process", 16, 100, 3200),
    Workload("server, 1 message per request, 32 connections, 1 load process", 32, 1, 640),
)


@contextmanager
def ours(folder: Path) -> Iterator[tuple[Server, Server]]:
    """Ackwise servers, one per store, in the same new folder."""
    folder.mkdir()
    with (
        servers.ackwise(folder, f"sqlite:///{folder}/server.db", SQLITE) as sqlite,
        servers.postgres(folder) as url,
        servers.ackwise(folder, url, POSTGRES) as postgres,
    ):
        yield sqlite, postgres


@contextmanager
def peers(folder: Path, queen_url: str) -> Iterator[list[Server]]:
    """Other servers that are installed."""
    with ExitStack() as stack:
        found = [stack.enter_context(start(folder)) for start in (servers.redis, servers.nats, servers.rabbit)]
        there = [server for server in found if server is not None]
        there += [replace(server, name=REDIS_PY, peer="redis-py") for server in there if server.peer == "redis"]
        if queen_url:
            there.append(Server(QUEEN, "http", queen_url))
        yield there


def everything(report: Report, folder: Path, queen_url: str) -> None:
    with ours(folder / "server") as mine, peers(folder, queen_url) as others, loader() as load:
        busy = [compare(report, load, workload, [*mine, *others]) for workload in WORKLOADS]
        for server in mine:
            beside_consumers(report, load, server)
            acks.all_sizes(report, load, server)
        for server in mine:
            report.add(
                "server, memory",
                f"{server.name}, most resident during the tables above",
                most_resident_mb(server.pid),
                "MB",
                metric="memory",
                aim=f"< {MOST_MB}",
            )
        for workload, shares in zip(WORKLOADS, busy, strict=True):
            for name, share in shares.items():
                row = f"{name}, batches of {workload.batch}"
                report.add("load process, at most", row, 100 * share, "% of a core", metric="cpu")


def compare(report: Report, load: Loader, workload: Workload, there: Sequence[Server]) -> dict[str, float]:
    """Measure push and pop+ack of all servers in turns, and the share of a core that the load process needed."""
    rounds = {server.name: Rounds(load, workload, server) for server in there}
    for number in range(-1, ROUNDS):
        for name, one in list(rounds.items()):
            try:
                one.run(number)
            except RuntimeError as problem:
                if name in (SQLITE, POSTGRES):
                    raise
                print(f"{name} is left out: {problem}", file=sys.stderr)
                del rounds[name]
    add_rows(report, workload.title, "push", {name: median(one.pushed) for name, one in rounds.items()})
    add_rows(report, workload.title, "pop+ack", {name: median(one.popped) for name, one in rounds.items()})
    return {name: max(done.busy for done in one.pushed + one.popped) for name, one in rounds.items()}


class Rounds:
    """Rounds of one server. Round -1 is small and decides the number of messages of the others."""

    def __init__(self, load: Loader, workload: Workload, server: Server) -> None:
        self._load, self._workload, self._server = load, workload, server
        self._messages = workload.first
        self.pushed: list[Done] = []
        self.popped: list[Done] = []

    def run(self, number: int) -> None:
        queue = f"bench-{RUN}-{self._server.peer}-{self._workload.batch}-{number}"
        job = load_of(self._workload, self._server, queue, self._messages)
        pushed, popped = self._load.run(Push(job)), self._load.run(Drain(job))
        if number < 0:
            self._messages = enough(self._workload, pushed)
        else:
            self.pushed.append(pushed)
            self.popped.append(popped)


def load_of(workload: Workload, server: Server, queue: str, messages: int) -> Load:
    return Load(
        peer=server.peer,
        address=server.address,
        queue=queue,
        connections=workload.connections,
        batch=workload.batch,
        messages=messages,
    )


def enough(workload: Workload, pushed: Done) -> int:
    """Number of messages for a measurement: whole batches for each connection."""
    each = workload.connections * workload.batch
    return each * max(1, round(pushed.rate * SECONDS / each))


def median(runs: Sequence[Done]) -> float:
    return statistics.median(done.rate for done in runs)


def add_rows(report: Report, table: str, what: str, rates: dict[str, float]) -> None:
    """Add a row per server: Ackwise compared with Redis, others with Ackwise. A missing server gets an empty row."""
    mine = rates[SQLITE]
    for name in ALL_SERVERS:
        row = f"{what}, {name}"
        if name not in rates:
            report.add(table, row, None)
        elif name == SQLITE:
            report.add(table, row, mine, versus=REDIS, base=rates.get(REDIS), aim=">= 1.5")
        elif name == POSTGRES and QUEEN in rates:
            report.add(table, row, rates[name], versus=QUEEN, base=rates[QUEEN], aim=">= 2")
        else:
            aim = "<= 0.67" if name == REDIS_PY else ""
            report.add(table, row, rates[name], versus=SQLITE, base=mine, aim=aim)


def beside_consumers(report: Report, load: Loader, server: Server) -> None:
    """Push alone, and beside sixteen connections that pop and ack all the time."""
    workload = WORKLOADS[0]
    size = enough(workload, load.run(Push(load_of(workload, server, "beside-first", workload.first))))
    alone, beside = [], []
    for number in range(ROUNDS):
        alone.append(load.run(Push(load_of(workload, server, f"alone-{number}", size))))
        beside.append(load.run(Beside(load_of(workload, server, f"beside-{number}", size), consumers=16)))
    table = f"{server.name}: push, batches of 100, beside consumers"
    report.add(table, "alone", median(alone))
    report.add(table, "beside 16 busy consumers", median(beside), versus="alone", base=median(alone))
    taken = statistics.median(done.taken / done.seconds for done in beside)
    report.add(table, "popped and acked meanwhile", taken, versus="alone", base=median(alone))
