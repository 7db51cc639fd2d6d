"""`ackwise lease`."""

from __future__ import annotations

from typing import Annotated

import typer

from ackwise.cli.arguments import DEFAULT_URL, URL, AsJSON, opened
from ackwise.cli.output import show

app = typer.Typer(no_args_is_help=True, help="Leases.")
_COLUMNS = ("lease_id", "queue", "group", "owner", "made_at", "deadline", "granted", "held")


@app.callback()
def lease() -> None:
    """Leases."""


@app.command()
def oldest(
    queue: Annotated[str | None, typer.Option("--queue", help="Only leases of this queue.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Most leases to list, 1 to 1000.")] = 10,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """List the oldest live leases, oldest first."""
    with opened(url) as connection:
        show(connection.oldest_leases(queue, limit=limit), _COLUMNS, as_json)
