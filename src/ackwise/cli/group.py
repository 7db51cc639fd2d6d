"""`ackwise group`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ackwise.cli.arguments import DEFAULT_URL, URL, AsJSON, DryRun, GroupName, Limit, QueueName, Yes, opened, sure
from ackwise.cli.output import counted, fields_of, group_shown, show_fields, show_json, show_rows
from ackwise.cli.queue import GROUP_COLUMNS, GROUP_OPTIONAL
from ackwise.core.errors import BadInput, UnknownGroup
from ackwise.spark.reports.columns import Column

if TYPE_CHECKING:
    from ackwise.client import Connection

app = typer.Typer(no_args_is_help=True, help="Consumer groups.")
_COLUMNS = (Column("queue", "queue"), *GROUP_COLUMNS)
_PLACES = (
    Column("partition", "partition"),
    Column("lag", "lag", "number"),
    Column("unread", "unread", "number"),
    Column("held", "held", "number"),
    Column("acked", "acked", "number"),
    Column("dead", "dead", "number"),
    Column("leases", "leases", "number"),
    Column("oldest_unfinished_at", "oldest", "moment"),
)
_PLACES_OPTIONAL = ("leases", "dead", "unread", "held", "acked", "oldest_unfinished_at")


@app.command(name="list")
def list_groups(
    queue: Annotated[str | None, typer.Argument(help="Only groups of this queue.")] = None,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """List groups with their lag and counts."""
    with opened(url) as connection:
        rows = [fields_of(group) for group in connection.groups(queue)]
    where = f"queue {queue} has no groups" if queue is not None else "no groups"
    show_rows(rows, _COLUMNS, as_json, f"{where}; a claim creates its group", optional=GROUP_OPTIONAL)


@app.command(name="show")
def show_group(
    queue: QueueName, group: GroupName, limit: Limit = 100, url: URL = DEFAULT_URL, as_json: AsJSON = False
) -> None:
    """Show a group's counts, consumers and position in each partition."""
    from ackwise.core.queries import ListPlaces

    with opened(url) as connection:
        row = _row(connection, queue, group)
        places = connection.transport.ask(ListPlaces(queue=queue, group=group, limit=limit))
    partitions = [_place(place) for place in places]
    if as_json:
        show_json({**row, "places": partitions})
        return
    print(f"{group_shown(group)} of {queue}: lag {row['lag']}, {row['unread']} unread, {row['held']} held")
    names = ("acked", "dead", "skipped", "expired", "leases", "oldest_unfinished_at")
    show_fields([*((f"  {name}", row[name]) for name in names), ("  members", ", ".join(row["members"]) or None)])
    show_rows(partitions, _PLACES, False, "no partitions; a push creates them", optional=_PLACES_OPTIONAL)


def _row(connection: Connection, queue: str, group: str) -> dict[str, Any]:
    from ackwise.client.results import GroupStats, as_result
    from ackwise.core.queries import ListGroups

    rows = connection.transport.ask(ListGroups(queue=queue, group=group))
    if not rows:
        raise UnknownGroup(f"queue {queue!r} has no group {group_shown(group)!r}", queue=queue, group=group)
    return fields_of(as_result(rows[0], GroupStats))


def _place(place: Any) -> dict[str, Any]:
    from ackwise.wire.timestamps import moment

    names = ("partition", "lag", "unread", "held", "acked", "dead", "skipped", "expired", "leases")
    oldest = place.oldest_unfinished_at
    return {
        **{name: getattr(place, name) for name in names},
        "oldest_unfinished_at": None if oldest is None else moment(oldest),
    }


@app.command()
def seek(
    queue: QueueName,
    group: GroupName,
    to: Annotated[str, typer.Option("--to", help="start, end, an ISO time, or a seq (with --partition).")],
    partition: Annotated[str | None, typer.Option("--partition", help="Only this partition.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: URL = DEFAULT_URL,
) -> None:
    """Move a group to another position. Its leases there end."""
    target = _target(to)
    with opened(url) as connection:
        _row(connection, queue, group)
        what = f"group {group_shown(group)} of {queue} to {to}"
        if dry_run:
            shown = connection.preview_seek(queue, group, to=target, partition=partition)
            print(f"would move {what}")
            lag = f"{shown.lag_before}, then {shown.lag_after}"
            counts = {"delivered again": shown.again, "skipped": shown.skipped, "leases lost": shown.leases, "lag": lag}
            show_fields([(f"  {name}", count) for name, count in counts.items()])
            return
        sure(f"move {what}", yes)
        lanes = connection.seek(queue, group, to=target, partition=partition)
    print(f"moved {group_shown(group)} to {to} in {counted(lanes, 'lane')}")


@app.command()
def delete(
    queue: QueueName, group: GroupName, dry_run: DryRun = False, yes: Yes = False, url: URL = DEFAULT_URL
) -> None:
    """Delete a group and its leases. Its dead letters stay."""
    with opened(url) as connection:
        row = _row(connection, queue, group)
        what = f"group {group_shown(group)} of {queue} with {counted(row['leases'], 'lease')}"
        if dry_run:
            print(f"would delete {what}")
            return
        sure(f"delete {what}", yes)
        connection.delete_group(queue, group)
    print(f"deleted {group_shown(group)}")


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
