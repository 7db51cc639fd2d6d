"""`ackwise consumer`."""

from __future__ import annotations

from typing import Annotated

import typer

from ackwise.cli.arguments import DEFAULT_URL, URL, AnyGroup, AnyQueue, AsJSON, Limit, check_group, duration, opened
from ackwise.cli.output import fields_of, show_rows
from ackwise.spark.reports.columns import Column

app = typer.Typer(no_args_is_help=True, help="Consumers.")
_COLUMNS = (
    Column("consumer", "consumer", "id"),
    Column("queue", "queue"),
    Column("group", "group"),
    Column("leases", "leases", "number"),
    Column("held", "held", "number"),
    Column("claims", "claims", "number"),
    Column("last_claim_at", "last claim", "moment"),
    Column("deadline", "deadline", "moment"),
)
_OPTIONAL = ("deadline", "claims", "last_claim_at", "leases")


@app.callback()
def consumer() -> None:
    """Consumers."""


@app.command(name="list")
def list_consumers(
    queue: AnyQueue = None,
    group: AnyGroup = None,
    recent: Annotated[
        str, typer.Option("--recent", help="Also consumers that claimed in this time, up to 1h.")
    ] = "60s",
    limit: Limit = 1000,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """List consumers: owners of live leases and of recent claims. Claims without an owner are (unnamed)."""
    within = duration(recent, "--recent")
    with opened(url) as connection:
        if queue is not None:
            connection.queue(queue)
        rows = [fields_of(row) for row in connection.consumers(queue, group, recent=within, limit=limit)]
        if not rows:
            check_group(connection, queue, group)
    nothing = f"no consumers in the last {recent}; run one with: ackwise run MODULE:APP"
    show_rows(rows, _COLUMNS, as_json, nothing, optional=_OPTIONAL)
