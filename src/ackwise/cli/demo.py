"""`ackwise demo` and `ackwise bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ackwise.cli.arguments import AsJSON
from ackwise.cli.output import show_json, show_rows
from ackwise.demo.orders import MESSAGES
from ackwise.spark.reports.columns import Column


def demo(
    messages: Annotated[int, typer.Option("--messages", min=1, help="Number of orders.")] = MESSAGES,
    seed: Annotated[int, typer.Option("--seed", help="Seed that decides which orders fail.")] = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder for the report.")] = Path("build/demo"),
) -> None:
    """Run a Spark pipeline over generated orders and write a report of the dead letters."""
    # Imported here, so that the help of the command needs no rich.
    from ackwise.demo.run import run

    run(messages, seed, out)


_COLUMNS = (
    Column("operation", "operation"),
    Column("calls", "calls", "number"),
    Column("rate", "per second"),
    Column("mean", "mean ms"),
    Column("p50", "p50"),
    Column("p95", "p95"),
    Column("p99", "p99"),
    Column("most", "max"),
    Column("theirs", "the other project says"),
)
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
    from ackwise.bench import pushpop as measuring

    measured = measuring.measure(users, iterations, url=url, store=store, ramp_up=ramp_up)
    if as_json:
        show_json(measured)
        return
    rows: list[dict[str, object]] = [
        {
            "operation": row.operation,
            "calls": row.count,
            "rate": f"{row.per_second:,.0f}",
            **{name: f"{getattr(row, name):.2f}" for name in ("mean", "p50", "p95", "p99", "most")},
            "theirs": row.theirs,
        }
        for row in measured.rows
    ]
    rows.append(
        {"operation": "bytes per lock", "calls": measured.bytes_per_lock, "theirs": measuring.LOCK_BYTES_THEIRS}
    )
    show_rows(rows, _COLUMNS, False, "nothing was measured", optional=("p50", "p95", "most"))
