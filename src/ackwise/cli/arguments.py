"""Arguments that several commands share: options, durations, instants, `module:name` targets."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from ackwise.client import Connection
from ackwise.client.server_url import is_server
from ackwise.connect import connect
from ackwise.core.errors import BadInput, StoreUnavailable
from ackwise.wire.store_url import parse

DEFAULT_URL = "sqlite:///ackwise.db"

URL = Annotated[
    str, typer.Option("--url", envvar="ACKWISE_URL", help="URL of the store or server.", show_default=DEFAULT_URL)
]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def sure(question: str, yes: bool) -> None:
    """Ask for confirmation unless `yes`. Without a terminal the command stops."""
    if not yes:
        typer.confirm(question, abort=True, err=True)


def opened(url: str, *, create: bool = False) -> Connection:
    """Open a connection. Creates a missing SQLite file only with `create`."""
    if not create:
        must_exist(url)
    return connect(url)


def must_exist(url: str) -> None:
    """Raise if `url` is a missing SQLite file. The connection to a server reports a missing server."""
    if is_server(url):
        return
    where = parse(url)
    if where.scheme == "sqlite" and not Path(where.target).exists():
        raise StoreUnavailable(f"there is no store at {where.target}; set its URL with --url or ACKWISE_URL")


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
