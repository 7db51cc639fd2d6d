"""`python -m benchmarks`: all tables, into build/bench.json. `--quick` runs briefly, `--only NAME,NAME` some tables."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks import (
    amps,
    catalogue,
    dashboard,
    embedded,
    events,
    growth,
    install,
    mew,
    observability,
    postgres,
    server,
    start,
    waiters,
)
from benchmarks.report import Report
from benchmarks.timing import fsync_micros

TABLES = (
    "embedded",
    "callers",
    "readers",
    "events",
    "observability",
    "lanes",
    "postgres",
    "server",
    "waiters",
    "amps",
    "mew",
    "subscriber",
    "spark",
    "growth",
    "catalogue",
    "dashboard",
    "install",
    "start",
)


def spark_tables(report: Report, folder: Path, messages: int) -> None:
    """Imported here, so that other tables do not load Spark."""
    from benchmarks.spark.tables import everything

    everything(report, folder, messages)


def subscriber_tables(report: Report, folder: Path) -> None:
    """Imported here, so that other tables do not load FastStream."""
    from benchmarks import subscriber

    subscriber.everything(report, folder)


WIDTH = 132
"""Of the tables in a file or a pipe: rows that are broken into several lines cannot be searched."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--quick", action="store_true", help="smaller growth tables")
    parser.add_argument("--only", default="", help=f"some of {','.join(TABLES)}")
    parser.add_argument("--queen-url", default="", help="a Queen server to measure beside ours")
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"))
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    report = Report()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    messages = 500_000 if options.quick else 5_000_000
    with tempfile.TemporaryDirectory(dir=options.out.parent) as name:
        folder = Path(name).resolve()
        report.add("this machine", "fdatasync p50", fsync_micros(folder), "us", metric="fsync")
        jobs: dict[str, Callable[[], None]] = {
            "embedded": lambda: embedded.batches_of_all_sizes(report, folder),
            "callers": lambda: embedded.many_callers(report, folder),
            "readers": lambda: embedded.beside_readers(report, folder),
            "events": lambda: events.everything(report, folder),
            "observability": lambda: observability.everything(report, folder),
            "lanes": lambda: growth.lanes(report, folder, 10_000),
            "postgres": lambda: postgres.batches_of_all_sizes(report),
            "server": lambda: server.everything(report, folder, options.queen_url),
            "waiters": lambda: waiters.everything(report, folder),
            "amps": lambda: amps.ack_batching(report, folder),
            "subscriber": lambda: subscriber_tables(report, folder),
            "spark": lambda: spark_tables(report, folder, 100_000 if options.quick else 400_000),
            "mew": lambda: mew.everything(report, folder, 100_000 if options.quick else 1_000_000),
            "growth": lambda: growth.stored_messages(report, folder, messages),
            "catalogue": lambda: catalogue.everything(
                report, folder, 5_000 if options.quick else 50_000, 100_000 if options.quick else 1_000_000
            ),
            "dashboard": lambda: dashboard.everything(report, folder, 100_000 if options.quick else 1_000_000),
            "install": lambda: install.everything(report, folder),
            "start": lambda: start.everything(report, folder),
        }
        for job, run in jobs.items():
            if not options.only or job in options.only.split(","):
                with console.status(f"measuring: {job}"):
                    run()
    report.show(console)
    report.write(options.out)


if __name__ == "__main__":
    main()
