"""`ackwise demo` and `ackwise bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ackwise.bench import pushpop as measuring
from ackwise.cli.arguments import AsJSON
from ackwise.cli.output import show_json, wide
from ackwise.demo.orders import MESSAGES
from ackwise.demo.run import run


def demo(
    messages: Annotated[int, typer.Option("--messages", min=1, help="Number of orders.")] = MESSAGES,
    seed: Annotated[int, typer.Option("--seed", help="Seed that decides which orders fail.")] = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder for the report.")] = Path("build/demo"),
) -> None:
    """Run a Spark pipeline over generated orders and write a report of the dead letters."""
    run(messages, seed, out)


app = typer.Typer(no_args_is_help=True, help="Run benchmarks on this machine.")


@app.callback()
def bench() -> None:
    """Run benchmarks on this machine."""


@app.command()
def pushpop(
    users: Annotated[
        int, typer.Option("--users", "-u", min=1, help="Number of users, each with a connection and a queue.")
    ] = 40,
    iterations: Annotated[int, typer.Option("--iterations", "-i", min=2, help="Items per user.")] = 10_000,
    ramp_up: Annotated[
        float, typer.Option("--ramp-up", "-r", min=0, help="New users per second; 0 starts all at once.")
    ] = 0.0,
    url: Annotated[str | None, typer.Option(help="Running server to measure. Default: start one.")] = None,
    store: Annotated[
        str | None, typer.Option(help="Store of the server that the benchmark starts.", show_default="a SQLite file")
    ] = None,
    as_json: AsJSON = False,
) -> None:
    """Measure PushPop: push, pop, pop with ack, acknowledge, expired locks, bytes per lock."""
    measured = measuring.measure(users, iterations, url=url, store=store, ramp_up=ramp_up)
    if as_json:
        show_json(measured)
        return
    table = Table("operation", "calls", "per second", "mean ms", "p50", "p95", "p99", "max", "the other project says")
    for row in measured.rows:
        times = (row.mean, row.p50, row.p95, row.p99, row.most)
        table.add_row(
            row.operation, f"{row.count:,}", f"{row.per_second:,.0f}", *(f"{ms:.2f}" for ms in times), row.theirs
        )
    table.add_row("bytes per lock", f"{measured.bytes_per_lock:,}", *[""] * 6, measuring.LOCK_BYTES_THEIRS)
    wide().print(table)
