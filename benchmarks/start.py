"""Start of the command line: CPU seconds of the help and of a first list, beside the programs of other task queues.

A peer is measured where its package is installed beside this one. Otherwise its row has no value.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from ackwise import connect
from benchmarks.report import Report

ROUNDS = 5
TABLE = "start of the command line"
PEERS = {
    "Celery": ("celery", "from celery.__main__ import main; main()"),
    "RQ": ("rq", "from rq.cli import main; main()"),
    "Dramatiq": ("dramatiq", "from dramatiq.cli import make_argument_parser as p; p().parse_args()"),
    "procrastinate": ("procrastinate", "from procrastinate.cli import main; main()"),
}
"""Package of each peer, and the code of its program."""


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
    for name, (package, code) in PEERS.items():
        if find_spec(package) is None:
            report.add(TABLE, f"{name}: not installed here", None, "s CPU", metric="start")
            continue
        theirs = cpu_seconds([sys.executable, "-c", f"import sys; sys.argv[:] = [{package!r}, '--help']; {code}"])
        report.add(TABLE, f"{name} --help", theirs, "s CPU", metric="start", versus="ackwise --help", base=base)


def cpu_seconds(command: list[str]) -> float:
    """Median of the user and system time of a process, after a first run that fills the caches."""
    times = []
    for _ in range(ROUNDS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return round(statistics.median(times[1:]), 3)
