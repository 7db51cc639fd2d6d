"""`ackwise queue`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from ackwise.cli.arguments import DEFAULT_URL, URL, AsJSON, Yes, opened, sure
from ackwise.cli.output import plain, show, show_json
from ackwise.core.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="Queues.")
Policy = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Field of the policy, as JSON; repeatable.")
]


@app.command(name="list")
def list_queues(url: URL = DEFAULT_URL, as_json: AsJSON = False) -> None:
    """List all queues."""
    with opened(url) as connection:
        show(connection.queues(), ("name", "namespace", "task", "paused", "created_at"), as_json)


@app.command(name="show")
def show_queue(name: str, url: URL = DEFAULT_URL, as_json: AsJSON = False) -> None:
    """Show a queue's policy, counts and groups."""
    with opened(url) as connection:
        info, stats = connection.queue(name), connection.stats(name)
    if as_json:
        show_json({**plain(info), **plain(stats)})
        return
    print(
        f"{name}{' (paused)' if info.paused else ''}: {stats.messages} messages in {stats.partitions} partitions, ",
        end="",
    )
    print(f"{stats.scheduled} scheduled, {stats.dead} dead")
    for field, value in sorted(info.policy.items()):
        print(f"  {field} = {msgspec.json.encode(value).decode()}")
    show(stats.groups, ("group", "lag", "unread", "held", "acked", "dead", "skipped", "expired", "leases"), False)


@app.command()
def create(name: str, settings: Policy = None, url: URL = DEFAULT_URL) -> None:
    """Create a queue: `ackwise queue create orders --set retry_limit=5`."""
    fields = _fields(settings or [])
    with opened(url, create=True) as connection:
        connection.create_queue(name, **fields)
    print(f"created {name}")


@app.command()
def delete(name: str, yes: Yes = False, url: URL = DEFAULT_URL) -> None:
    """Delete a queue and all its messages."""
    with opened(url) as connection:
        held = connection.stats(name).messages
        sure(f"Delete queue {name} with its {held} messages?", yes)
        connection.delete_queue(name)
    print(f"deleted {name}")


@app.command()
def pause(name: str, url: URL = DEFAULT_URL) -> None:
    """Stop deliveries of a queue. Pushes still work."""
    with opened(url) as connection:
        connection.pause_queue(name)
    print(f"paused {name}")


@app.command()
def resume(name: str, url: URL = DEFAULT_URL) -> None:
    """Start deliveries of a paused queue again."""
    with opened(url) as connection:
        connection.resume_queue(name)
    print(f"resumed {name}")


def _fields(settings: list[str]) -> dict[str, Any]:
    fields = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise BadInput(f"--set {setting}: write it as field=value")
        try:
            fields[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            fields[name] = text
    return fields
