"""`ackwise bench`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from ackwise.bench import pushpop as measuring
from ackwise.cli.opening import AsJSON
from ackwise.cli.showing import show_json, wide

app = typer.Typer(no_args_is_help=True, help="Measure this machine.")


@app.callback()
def bench() -> None:
    """Measure this machine."""


@app.command()
def pushpop(
    users: Annotated[int, typer.Option("--users", "-u", min=1, help="Each has a connection and a queue.")] = 40,
    iterations: Annotated[int, typer.Option("--iterations", "-i", min=2, help="Items that each user pushes.")] = 10_000,
    ramp_up: Annotated[float, typer.Option("--ramp-up", "-r", min=0, help="Users a second; 0: all at once.")] = 0.0,
    url: Annotated[str | None, typer.Option(help="A server that runs already, instead of one of its own.")] = None,
    store: Annotated[
        str | None, typer.Option(help="The store of its own server.", show_default="a SQLite file")
    ] = None,
    as_json: AsJSON = False,
) -> None:
    """PushPop: push, pop, pop with ack, acknowledge, expired locks and the size of one."""
    found = measuring.measure(users, iterations, url=url, store=store, ramp_up=ramp_up)
    if as_json:
        show_json(found)
        return
    table = Table("operation", "calls", "per second", "mean ms", "p50", "p95", "p99", "max", "the other project says")
    for row in found.rows:
        times = (row.mean, row.p50, row.p95, row.p99, row.most)
        table.add_row(
            row.operation, f"{row.count:,}", f"{row.per_second:,.0f}", *(f"{ms:.2f}" for ms in times), row.theirs
        )
    table.add_row("bytes per lock", f"{found.bytes_per_lock:,}", *[""] * 6, measuring.LOCK_BYTES_THEIRS)
    wide().print(table)
