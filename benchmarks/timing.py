"""Timing: medians over rounds, in which the compared jobs take turns."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path


def rates(rounds: int, *jobs: Callable[[], int]) -> list[float]:
    """Messages per second of each job, the median over rounds. Every round runs all jobs, so noise affects each."""
    seen: list[list[float]] = [[] for _ in jobs]
    for _ in range(rounds):
        for job, mine in zip(jobs, seen, strict=True):
            started = time.perf_counter()
            count = job()
            mine.append(count / (time.perf_counter() - started))
    return [statistics.median(mine) for mine in seen]


def fsync_micros(folder: Path) -> float:
    """p50 of fdatasync after a write of one page: the minimum of a durable commit on this machine."""
    took = []
    handle = os.open(folder / "fsync", os.O_CREAT | os.O_RDWR)
    try:
        for number in range(200):
            os.pwrite(handle, b"x" * 4096, number * 4096)
            started = time.perf_counter()
            os.fdatasync(handle)
            took.append(time.perf_counter() - started)
    finally:
        os.close(handle)
    return statistics.median(took) * 1e6


def resident_mb() -> float:
    """Resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
