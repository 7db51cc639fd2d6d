"""`ackwise group`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from ackwise.cli.arguments import DEFAULT_URL, URL, AsJSON, Yes, opened, sure
from ackwise.cli.output import show
from ackwise.core.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="Consumer groups.")
_COLUMNS = ("queue", "group", "lag", "unread", "held", "acked", "dead", "skipped", "expired", "leases")


@app.command(name="list")
def list_groups(
    queue: Annotated[str | None, typer.Argument(help="Only groups of this queue.")] = None,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """List groups with their lag and counts."""
    with opened(url) as connection:
        show(connection.groups(queue), _COLUMNS, as_json)


@app.command()
def seek(
    queue: str,
    group: str,
    to: Annotated[str, typer.Option("--to", help="start, end, an ISO time, or a seq (with --partition).")],
    partition: Annotated[str | None, typer.Option("--partition", help="Only this partition.")] = None,
    yes: Yes = False,
    url: URL = DEFAULT_URL,
) -> None:
    """Move a group to another position. Its leases there end."""
    target = _target(to)
    sure(f"Move group {group} of {queue} to {to}?", yes)
    with opened(url) as connection:
        lanes = connection.seek(queue, group, to=target, partition=partition)
    print(f"moved {group} to {to} in {lanes} lanes")


@app.command()
def delete(queue: str, group: str, yes: Yes = False, url: URL = DEFAULT_URL) -> None:
    """Delete a group and its leases. Its dead letters stay."""
    sure(f"Delete group {group} of {queue}?", yes)
    with opened(url) as connection:
        connection.delete_group(queue, group)
    print(f"deleted {group}")


def _target(text: str) -> Literal["start", "end"] | datetime | int:
    if text == "start" or text == "end":
        return "start" if text == "start" else "end"
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"--to {text}: use start, end, an ISO time such as 2030-01-31T12:00:00Z, or a seq") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
