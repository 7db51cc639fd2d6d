"""`ackwise lease`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated

import typer

from ackwise.cli.arguments import DEFAULT_URL, URL, AnyGroup, AnyQueue, AsJSON, Limit, check_group, duration, opened
from ackwise.cli.output import fields_of, show_rows
from ackwise.core.errors import LeaseLost, NotFound
from ackwise.core.settlement import Verdict
from ackwise.spark.reports.columns import Column, moment

app = typer.Typer(no_args_is_help=True, help="Leases.")
_COLUMNS = (
    Column("lease_id", "lease", "id"),
    Column("queue", "queue"),
    Column("group", "group"),
    Column("owner", "owner"),
    Column("held", "held", "number"),
    Column("granted", "granted", "number"),
    Column("made_at", "made", "moment"),
    Column("deadline", "deadline", "moment"),
)
_ENDED = (Column("ended_at", "ended", "moment"), Column("end_kind", "how"))
_OPTIONAL = ("granted", "made_at", "owner", "ended_at", "deadline", "group")
_NOTHING = "no live leases; a claim takes one"
LeaseId = Annotated[str, typer.Argument(metavar="LEASE", help="Id of the lease.")]


@app.command(name="list")
def list_leases(
    queue: AnyQueue = None,
    group: AnyGroup = None,
    ended: Annotated[bool, typer.Option("--all", help="Also leases that ended.")] = False,
    limit: Limit = 100,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """List live leases, newest first."""
    with opened(url) as connection:
        if queue is not None:
            connection.queue(queue)
        rows = [fields_of(row) for row in connection.leases(queue, group, live_only=not ended, limit=limit)]
        if not rows:
            check_group(connection, queue, group)
    columns = (*_COLUMNS, *_ENDED) if ended else _COLUMNS
    show_rows(rows, columns, as_json, "no leases; a claim takes one" if ended else _NOTHING, optional=_OPTIONAL)


@app.command()
def oldest(
    queue: AnyQueue = None,
    limit: Annotated[int, typer.Option("--limit", help="Most leases to list, 1 to 1000.")] = 10,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """List the oldest live leases, oldest first."""
    with opened(url) as connection:
        if queue is not None:
            connection.queue(queue)
        rows = [fields_of(row) for row in connection.oldest_leases(queue, limit=limit)]
    show_rows(rows, _COLUMNS, as_json, _NOTHING, optional=_OPTIONAL)


@contextlib.contextmanager
def _known(lease: str) -> Iterator[None]:
    """Reports a lease that is not live as `NotFound`, with the command that lists live leases."""
    try:
        yield
    except (LeaseLost, NotFound):
        raise NotFound(f"there is no live lease {lease!r}; list the live ones with: ackwise lease list") from None


@app.command()
def extend(
    lease: LeaseId,
    by: Annotated[str, typer.Option("--for", metavar="TIME", help="Time from now: 90s, 15m.")] = "60s",
    url: URL = DEFAULT_URL,
) -> None:
    """Set a live lease's deadline to a time from now."""
    length = duration(by, "--for")
    with opened(url) as connection, _known(lease):
        deadline = connection.extend(lease, length)
    print(f"lease {lease} ends at {moment(deadline)}")


@app.command()
def release(lease: LeaseId, url: URL = DEFAULT_URL) -> None:
    """Return the messages of a live lease to their queue, without a failure. The consumer can no longer settle them."""
    with opened(url) as connection, _known(lease):
        if connection.release(lease) is not Verdict.RELEASED:
            raise NotFound
    print(f"released {lease}")
