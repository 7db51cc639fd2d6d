"""Start of the command line: CPU seconds of the help and of a first list, beside the programs of other task queues.

The bench installs each peer from PyPI into a temporary environment. A peer that cannot be installed has no value.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from pathlib import Path

from ackwise import connect
from benchmarks.report import Report

ROUNDS = 5
TABLE = "start of the command line"
PEERS = {"Celery": "celery", "RQ": "rq", "Dramatiq": "dramatiq", "procrastinate": "procrastinate"}
"""Package of each peer. Its program has the same name."""


def everything(report: Report, folder: Path) -> None:
    """Measures our program and those of the peers."""
    url = f"sqlite:///{folder}/start.db"
    with connect(url) as connection:
        for number in range(3):
            connection.push(f"queue-{number}", {"n": 1})
    ours = [sys.executable, "-m", "ackwise"]
    base = cpu_seconds([*ours, "--help"])
    report.add(TABLE, "ackwise --help", base, "s CPU", metric="start", aim="< 0.3")
    listed = cpu_seconds([*ours, "queue", "list", "--url", url])
    report.add(TABLE, "ackwise queue list, 3 queues", listed, "s CPU", metric="start")
    for name, package in PEERS.items():
        _measure_peer(report, folder, name, package, base)


def _measure_peer(report: Report, folder: Path, name: str, package: str, base: float | None) -> None:
    version = install(folder / package, package)
    if version is None:
        report.add(TABLE, f"{name}: cannot be installed here", None, "s CPU", metric="start")
        return
    theirs = cpu_seconds([str(folder / package / "bin" / package), "--help"])
    report.add(TABLE, f"{name} {version} --help", theirs, "s CPU", metric="start", versus="ackwise --help", base=base)


def install(home: Path, package: str) -> str | None:
    """Installs a package into an environment of its own. Returns its version, or None if pip fails."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "-q", "--disable-pip-version-check"]
    if subprocess.run([*pip, "install", package], check=False, stdin=subprocess.DEVNULL).returncode:
        return None
    code = f"from importlib.metadata import version; print(version({package!r}))"
    shown = subprocess.run([str(home / "bin" / "python"), "-c", code], check=True, capture_output=True, text=True)
    return shown.stdout.strip()


def cpu_seconds(command: list[str]) -> float:
    """Median of the user and system time of a process, after a first run that fills the caches."""
    times = []
    for _ in range(ROUNDS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return round(statistics.median(times[1:]), 3)
