"""`ackwise context`."""

from __future__ import annotations

from typing import Annotated

import typer

from ackwise.cli import contexts
from ackwise.cli.arguments import AsJSON
from ackwise.cli.output import show_rows
from ackwise.core.errors import BadInput
from ackwise.spark.reports.columns import Column

app = typer.Typer(no_args_is_help=True, help="Named URLs.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]
_COLUMNS = (Column("name", "name"), Column("current", "current"), Column("url", "url", "id"))


@app.command()
def add(
    name: Name,
    target: Annotated[str, typer.Argument(metavar="URL", help="URL of a store or server.")],
) -> None:
    """Store a URL under a name, or change it. The first context becomes the current one."""
    from ackwise.client.server_url import base_of, is_server
    from ackwise.wire.store_url import parse

    if not contexts.NAME.fullmatch(name):
        raise BadInput(f"context name {name!r:.80}: use 1 to 64 letters, digits, '-', '_' and '.'")
    base_of(target) if is_server(target) else parse(target)
    stored = contexts.read()
    if name not in stored.contexts and len(stored.contexts) >= contexts.MOST:
        raise BadInput(f"there are {contexts.MOST} contexts already; remove one with: ackwise context remove NAME")
    stored.contexts[name] = target
    stored.current = stored.current or name
    contexts.write(stored)
    print(f"context {name} added" + (", and current" if stored.current == name else ""))


@app.command()
def use(name: Name) -> None:
    """Make a context the current one: commands use its URL by default."""
    stored = contexts.read()
    stored.url(name)
    stored.current = name
    contexts.write(stored)
    print(f"context {name} is current")


@app.command()
def remove(name: Name) -> None:
    """Remove a context. The store or server does not change."""
    stored = contexts.read()
    stored.url(name)
    del stored.contexts[name]
    if stored.current == name:
        stored.current = None
    contexts.write(stored)
    print(f"context {name} removed")


@app.command(name="list")
def list_contexts(as_json: AsJSON = False) -> None:
    """List contexts. Passwords are hidden."""
    from ackwise.wire.store_url import without_password

    stored = contexts.read()
    rows = [
        {"name": name, "current": name == stored.current, "url": without_password(url)}
        for name, url in sorted(stored.contexts.items())
    ]
    show_rows(rows, _COLUMNS, as_json, "no contexts; add one with: ackwise context add NAME URL")
