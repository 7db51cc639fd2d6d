"""Latency and rate of acks alone, beside the figures that Queen's documentation gives."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from benchmarks.load.jobs import Acks, Done, Load
from benchmarks.loader import Loader
from benchmarks.report import Report
from benchmarks.servers import Server

ROUNDS = 3
BUSY = 32
"""Connections at once where acks per second are counted; a latency is that of one connection by itself."""


@dataclass(frozen=True)
class Size:
    """Size of an ack in messages, with Queen's documented milliseconds and best rate, if there is one."""

    title: str
    batch: int
    alone: int
    together: int
    least_ms: float
    most_ms: float
    rate: float | None = None


SIZES = (
    Size("single", 1, 200, 1_600, 10, 50, 2_000),
    Size("10 at once", 10, 2_000, 6_400, 20, 80, 20_000),
    Size("100 at once", 100, 10_000, 12_800, 50, 150),
)


def all_sizes(report: Report, load: Loader, server: Server) -> None:
    for size in SIZES:
        for leased in (True, False):
            one_size(report, load, server, size, leased)


def one_size(report: Report, load: Loader, server: Server, size: Size, leased: bool) -> None:
    alone: list[Done] = []
    together: list[Done] = []
    for number in range(ROUNDS):
        for connections, messages, runs in ((1, size.alone, alone), (BUSY, size.together, together)):
            queue = f"acks-{size.batch}-{leased}-{connections}-{number}"
            job = Load(
                address=server.address, queue=queue, connections=connections, batch=size.batch, messages=messages
            )
            runs.append(load.run(Acks(job, leased)))
    table = f"{server.name}: acks alone, beside the seed's figures"
    title = f"{size.title}, {'with' if leased else 'without'} leaseId"
    for name, took, base in (
        ("p50", statistics.median(done.p50 for done in alone), size.least_ms),
        ("p99", statistics.median(done.p99 for done in alone), size.most_ms),
    ):
        report.add(table, f"{title}: {name}, 1 connection", took, "ms", metric=name,
                   versus=f"seed {base:g} ms", base=base, aim="<= 0.1")  # fmt: skip
    rate = statistics.median(done.rate for done in together)
    versus = f"seed {size.rate:,.0f} acks/s" if size.rate else ""
    report.add(table, f"{title}: acks, {BUSY} connections", rate, "acks/s", versus=versus, base=size.rate,
               aim=">= 10" if size.rate else "")  # fmt: skip
    under_load = statistics.median(done.p99 for done in together)
    report.add(table, f"{title}: p99, {BUSY} connections", under_load, "ms", metric="p99_busy")
