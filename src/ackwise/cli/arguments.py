"""Arguments that several commands share: options, confirmations, durations, instants, `module:name` targets."""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ackwise.cli.output import group_from, group_shown
from ackwise.core.errors import AckwiseError, BadInput, StoreUnavailable, UnknownGroup

if TYPE_CHECKING:
    from ackwise.client import Connection

DEFAULT_URL = "sqlite:///ackwise.db"
CONTEXT_FLAG = "ackwise.context.flag"
"""Key of the URL that `--context` names."""
CONTEXT_DEFAULT = "ackwise.context.default"
"""Key of the URL that ACKWISE_CONTEXT or `ackwise context use` names."""
PATIENCE = 3.0
"""Seconds that a command waits for a server or a PostgreSQL that is not up yet."""
_COMPLETIONS = 50
_COMPLETION_SECONDS = 1.0


def _chosen_url(context: typer.Context, value: str) -> str:
    """The URL by precedence: `--url`, `--context`, ACKWISE_URL, ACKWISE_CONTEXT, the TOML file, the current context."""
    source = context.get_parameter_source("url")
    named = source is not None and source.name == "COMMANDLINE"
    meta = context.find_root().meta
    if not named and (url := meta.get(CONTEXT_FLAG)) is not None:
        return str(url)
    if source is not None and source.name == "DEFAULT" and (url := meta.get(CONTEXT_DEFAULT)) is not None:
        return str(url)
    return value


def _completed_queues(context: typer.Context, incomplete: str) -> list[str]:
    """Names of queues that begin with `incomplete`. Reads a bounded number. Waits about a second for a server."""
    try:
        from ackwise.connect import connect
        from ackwise.core.queries import ListQueues

        url = _completion_url(context)
        must_exist(url)
        with connect(url, patience=_COMPLETION_SECONDS) as connection:
            rows = connection.transport.ask(ListQueues(after=incomplete, limit=_COMPLETIONS))
            names = [row.name for row in rows if row.name.startswith(incomplete)]
            if incomplete:
                names[:0] = [incomplete] if _exists(connection, incomplete) else []
            return names
    except Exception:
        # A shell shows no errors while it completes a word.
        return []


def _completion_url(context: typer.Context) -> str:
    """The URL for shell completion. Reads the contexts itself, because the program has not read them yet."""
    from ackwise.cli import contexts

    source = context.get_parameter_source("url")
    if source is not None and source.name != "DEFAULT":
        return str(context.params["url"])
    name = os.environ.get("ACKWISE_CONTEXT")
    stored = contexts.read()
    return (stored.url(name) if name else stored.current_url) or DEFAULT_URL


def _exists(connection: Connection, queue: str) -> bool:
    try:
        connection.queue(queue)
    except AckwiseError:
        return False
    return True


URL = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="ACKWISE_URL",
        help="URL of the store or server.",
        show_default=DEFAULT_URL,
        callback=_chosen_url,
    ),
]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing. Only print what would change.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.", autocompletion=_completed_queues)]
AnyQueue = Annotated[str | None, typer.Option("--queue", help="Only this queue.", autocompletion=_completed_queues)]
GroupName = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="Name of the group, or (default).", callback=group_from),
]
AnyGroup = Annotated[
    str | None,
    typer.Option("--group", help="Only this group. (default) is the one without a name.", callback=group_from),
]
Partition = Annotated[str | None, typer.Option("--partition", help="Only this partition.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of rows.")]


def sure(action: str, yes: bool) -> None:
    """Ask for confirmation of `action` unless `yes`. Without a terminal the command refuses."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise AckwiseError(f"{action} needs a confirmation and there is no terminal; pass --yes")
    typer.confirm(f"{action[:1].upper()}{action[1:]}?", abort=True, err=True)


def opened(url: str, *, create: bool = False) -> Connection:
    """Open a connection. Creates a missing SQLite file only with `create`."""
    from ackwise.connect import connect

    if not create:
        must_exist(url)
    return connect(url, patience=PATIENCE)


def must_exist(url: str) -> None:
    """Raise if `url` is a missing SQLite file. The connection to a server reports a missing server."""
    from ackwise.client.server_url import is_server
    from ackwise.wire.store_url import parse

    if is_server(url):
        return
    where = parse(url)
    if where.scheme == "sqlite" and not Path(where.target).exists():
        raise StoreUnavailable(f"there is no store at {where.target}; set its URL with --url or ACKWISE_URL")


def check_group(connection: Connection, queue: str | None, group: str | None) -> None:
    """Raise if the queue has no group of this name. Without `queue`, raise if no queue has one.

    Commands call it after an empty result. A deleted group may still have dead letters and settlements.
    """
    from ackwise.core.queries import ListGroups

    if group is None or connection.transport.ask(ListGroups(queue=queue, group=group, limit=1)):
        return
    name = repr(group_shown(group))
    what = f"there is no group {name}" if queue is None else f"queue {queue!r} has no group {name}"
    raise UnknownGroup(f"{what}; list the groups with: ackwise group list", queue=queue, group=group)


_PART = re.compile(r"(\d+(?:\.\d+)?)(s|m|min|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def duration(text: str, what: str) -> timedelta:
    """Parse `90s`, `15m`, `1h30m` or `7d`."""
    parts = _PART.findall(text.strip())
    if not parts or "".join(map("".join, parts)) != text.strip():
        raise BadInput(f"{what} {text}: write a duration like 90s, 15m, 1h or 7d")
    try:
        return timedelta(seconds=sum(float(count) * _SECONDS[unit] for count, unit in parts))
    except OverflowError:
        raise BadInput(f"{what} {text} is too long") from None


def instant(text: str | None, what: str, now: datetime) -> datetime | None:
    """Parse an ISO time (UTC unless it has an offset), or a duration before `now`."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except ValueError:
        pass
    try:
        return now - duration(text, what)
    except (BadInput, OverflowError):
        raise BadInput(f"{what} {text}: use an ISO time such as 2030-01-31T12:00:00Z, or how long ago: 24h") from None


def named(target: str, what: str, example: str) -> tuple[str, str]:
    """Split `module:name`. Puts the working folder on the import path, as `python -m` does."""
    module, _, name = target.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise BadInput(f"{target!r} names no {what}; write it like {example}")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    return module, name
