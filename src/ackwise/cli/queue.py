"""`ackwise queue`."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import typer

from ackwise.cli.arguments import DEFAULT_URL, URL, AsJSON, DryRun, Limit, QueueName, Yes, opened, sure
from ackwise.cli.output import counted, fields_of, show_fields, show_json, show_rows
from ackwise.core.errors import BadInput
from ackwise.spark.reports.columns import Column

app = typer.Typer(no_args_is_help=True, help="Queues.")
Policy = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Field of the policy, as JSON; repeatable.")
]
_COLUMNS = (
    Column("name", "name"),
    Column("pending", "pending", "number"),
    Column("processing", "processing", "number"),
    Column("dead", "dead", "number"),
    Column("pushed_rate", "in/s", "number"),
    Column("acked_rate", "out/s", "number"),
    Column("messages", "stored", "number"),
    Column("scheduled", "scheduled", "number"),
    Column("groups", "groups", "number"),
    Column("paused", "paused"),
    Column("namespace", "namespace"),
    Column("task", "task"),
    Column("created_at", "created", "moment"),
)
_OPTIONAL = (
    "created_at",
    "task",
    "namespace",
    "groups",
    "scheduled",
    "messages",
    "paused",
    "acked_rate",
    "pushed_rate",
)
GROUP_COLUMNS = (
    Column("group", "group"),
    Column("lag", "lag", "number"),
    Column("unread", "unread", "number"),
    Column("held", "held", "number"),
    Column("acked", "acked", "number"),
    Column("dead", "dead", "number"),
    Column("skipped", "skipped", "number"),
    Column("expired", "expired", "number"),
    Column("leases", "leases", "number"),
)
GROUP_OPTIONAL = ("skipped", "expired", "leases", "held", "unread", "dead", "acked")


@app.command(name="list")
def list_queues(
    limit: Limit = 1000,
    minutes: Annotated[int, typer.Option("--minutes", min=1, max=1440, help="Rates of this many minutes.")] = 5,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """List queues with their counts, and rates per second from the ledger."""
    from ackwise.cli.rates import queue_rows

    with opened(url) as connection:
        rows = queue_rows(connection, limit, minutes)
    show_rows(rows, _COLUMNS, as_json, "no queues; create one with: ackwise queue create NAME", optional=_OPTIONAL)


@app.command(name="show")
def show_queue(name: QueueName, url: URL = DEFAULT_URL, as_json: AsJSON = False) -> None:
    """Show a queue's policy, counts and groups."""
    with opened(url) as connection:
        info, stats = connection.queue(name), connection.stats(name)
    if as_json:
        show_json({**fields_of(info), **fields_of(stats)})
        return
    print(
        f"{name}{' (paused)' if info.paused else ''}: {counted(stats.messages, 'message')} in "
        f"{counted(stats.partitions, 'partition')}, "
        f"{stats.scheduled} scheduled, {stats.dead} dead"
    )
    show_fields((f"  {field}", msgspec.json.encode(value).decode()) for field, value in sorted(info.policy.items()))
    rows = [fields_of(group) for group in stats.groups]
    show_rows(rows, GROUP_COLUMNS, False, "no groups; a claim creates its group", optional=GROUP_OPTIONAL)


@app.command()
def create(name: QueueName, settings: Policy = None, url: URL = DEFAULT_URL) -> None:
    """Create a queue: `ackwise queue create orders --set retry_limit=5`."""
    fields = _fields(settings or [], "--set ")
    _check_kinds(fields)
    with opened(url, create=True) as connection:
        connection.create_queue(name, **fields)
    print(f"created {name}")


@app.command(name="set")
def set_fields(
    name: QueueName,
    settings: Annotated[list[str], typer.Argument(metavar="FIELD=VALUE...", help="Fields of the policy, as JSON.")],
    dry_run: DryRun = False,
    url: URL = DEFAULT_URL,
) -> None:
    """Change fields of a queue's policy: `ackwise queue set orders retry_limit=5 lease_seconds=60`."""
    fields = _fields(settings, "")
    with opened(url) as connection:
        before = connection.queue(name).policy
        if unknown := sorted(set(fields) - _policy_fields()):
            raise BadInput(f"a policy has no field {unknown[0]!r}; see: ackwise queue show {name}")
        _check_kinds(fields)
        after = {**before, **fields} if dry_run else connection.configure_queue(name, **fields).policy
    for field in sorted(fields):
        old, new = (msgspec.json.encode(policy.get(field)).decode() for policy in (before, after))
        print(f"{'would change' if dry_run else 'changed'} {field} from {old} to {new}")


def _policy_fields() -> set[str]:
    from ackwise.core.policy import QueuePolicy

    return set(QueuePolicy.__struct_fields__)


@app.command()
def purge(name: QueueName, dry_run: DryRun = False, yes: Yes = False, url: URL = DEFAULT_URL) -> None:
    """Remove all messages of a queue, scheduled ones too. Its groups skip them. Dead letters stay."""
    with opened(url) as connection:
        shown = connection.preview_purge(name)
        what = _removed(shown.messages, shown.scheduled)
        if dry_run:
            skips = f"; {counted(len(shown.groups), 'group')} would skip {counted(shown.skipped, 'unfinished message')}"
            print(f"would remove {what} of {name}{skips if shown.groups else ''}")
            return
        sure(f"remove {what} of queue {name}", yes)
        purged = connection.purge_queue(name, until=shown.until)
    kept = [f"{counted(shown.dead, 'dead letter')} kept"] if shown.dead else []
    print(", ".join([f"removed {_removed(purged.messages, purged.scheduled)} of {name}", *kept]))


def _removed(messages: int, scheduled: int) -> str:
    return counted(messages, "message") + (f" and {counted(scheduled, 'scheduled message')}" if scheduled else "")


@app.command()
def delete(name: QueueName, dry_run: DryRun = False, yes: Yes = False, url: URL = DEFAULT_URL) -> None:
    """Delete a queue and all its messages."""
    with opened(url) as connection:
        stats = connection.stats(name)
        what = f"queue {name} with {counted(stats.messages, 'message')} and {counted(stats.dead, 'dead letter')}"
        if dry_run:
            print(f"would delete {what}")
            return
        sure(f"delete {what}", yes)
        connection.delete_queue(name)
    print(f"deleted {name}")


@app.command()
def pause(name: QueueName, url: URL = DEFAULT_URL) -> None:
    """Stop deliveries of a queue. Pushes still work."""
    with opened(url) as connection:
        connection.pause_queue(name)
    print(f"paused {name}")


@app.command()
def resume(name: QueueName, url: URL = DEFAULT_URL) -> None:
    """Start deliveries of a paused queue again."""
    with opened(url) as connection:
        connection.resume_queue(name)
    print(f"resumed {name}")


def _fields(settings: list[str], flag: str) -> dict[str, Any]:
    fields = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise BadInput(f"{flag}{setting}: write it as field=value")
        try:
            fields[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            fields[name] = text
    return fields


def _check_kinds(fields: dict[str, Any]) -> None:
    """Raise if a value has the wrong kind. The store checks names and ranges."""
    from ackwise.core.policy import QueuePolicy

    # The notes of a protocol may also be a mapping.
    _check_struct({name: value for name, value in fields.items() if name != "notes"}, QueuePolicy, "")


def _check_struct(fields: dict[str, Any], struct: type, prefix: str) -> None:
    hints = get_type_hints(struct)
    if prefix and (unknown := sorted(fields.keys() - hints.keys())):
        raise BadInput(f"{prefix.rstrip('.')} has no field {unknown[0]!r}; its fields are {', '.join(hints)}")
    for name in sorted(fields.keys() & hints.keys()):
        value, hint = fields[name], hints[name]
        if isinstance(value, dict) and isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            _check_struct(value, hint, f"{prefix}{name}.")
            continue
        try:
            msgspec.convert(value, hint)
        except msgspec.ValidationError:
            raise BadInput(f"{prefix}{name} must be {_listed(_kinds(hint))}") from None


def _kinds(hint: Any) -> list[str]:
    """Words for the values of a type, for the error text."""
    if get_origin(hint) in (Union, types.UnionType):
        return [kind for part in get_args(hint) for kind in _kinds(part)]
    if get_origin(hint) is Literal:
        return [str(value) for value in get_args(hint)]
    if get_origin(hint) is tuple:
        return ["a list"]
    kinds = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "null"}
    return [kinds.get(hint, "an object")]


def _listed(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
