"""Thousands of long polls on a server that has nothing for them, and then a push."""

from __future__ import annotations

from pathlib import Path

from benchmarks import server
from benchmarks.load.jobs import Idle
from benchmarks.loader import loader
from benchmarks.process import allow_open_files, most_resident_mb
from benchmarks.report import Report

QUEUES = 500
WAITERS = 5_000
PARTITIONS = 10_000
IDLE_SECONDS = 30.0
PUSHES = 500


def everything(report: Report, folder: Path) -> None:
    allow_open_files(2 * WAITERS)
    with server.ours(folder / "waiters") as both, loader() as load:
        for one in both:
            job = Idle(address=one.address, pid=one.pid, queues=QUEUES, waiters=WAITERS, partitions=PARTITIONS,
                       seconds=IDLE_SECONDS, pushes=PUSHES)  # fmt: skip
            done = load.run(job)
            table = f"{one.name}: {WAITERS:,} idle long polls on {QUEUES} queues with {PARTITIONS:,} partitions"
            report.add(table, f"idle, over {IDLE_SECONDS:g} s", 100 * done.idle_cpu, "% of a core", metric="cpu",
                       aim="< 2")  # fmt: skip
            report.add(table, "push sent to waiter served, p50", done.p50, "ms", metric="p50", aim="< 20")
            report.add(table, "push sent to waiter served, p99", done.p99, "ms", metric="p99", aim="< 20")
            wrong = f"of {PUSHES:,} pushes not had by exactly one waiter of the queue"
            report.add(table, wrong, done.wrong, "messages", metric="wrong", aim="= 0")
            memory = most_resident_mb(one.pid)
            report.add(table, "most resident", memory, "MB", metric="memory", aim=f"< {server.MOST_MB}")
