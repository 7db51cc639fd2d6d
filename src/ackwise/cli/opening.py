"""The options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ackwise.client import Connection
from ackwise.client.servers import is_server
from ackwise.connect import connect
from ackwise.core.errors import StoreUnavailable
from ackwise.store.url import parse

DEFAULT_URL = "sqlite:///ackwise.db"

URL = Annotated[str, typer.Option("--url", envvar="ACKWISE_URL", help="The store or server.", show_default=DEFAULT_URL)]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def sure(question: str, yes: bool) -> None:
    """Ask before something is destroyed; without anybody to ask it is refused."""
    if not yes:
        typer.confirm(question, abort=True, err=True)


def opened(url: str, *, create: bool = False) -> Connection:
    """A connection; a SQLite file that is not there is only made where that is what was asked for."""
    if not create:
        must_exist(url)
    return connect(url)


def must_exist(url: str) -> None:
    """A server says itself when it is not there."""
    if is_server(url):
        return
    where = parse(url)
    if where.scheme == "sqlite" and not Path(where.target).exists():
        raise StoreUnavailable(f"there is no store at {where.target}; name one with --url or ACKWISE_URL")
