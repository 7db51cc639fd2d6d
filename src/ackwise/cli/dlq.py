"""`ackwise dlq`: dead letters."""

from __future__ import annotations

from typing import Annotated

import typer

from ackwise.cli.opening import DEFAULT_URL, URL, AsJSON, Yes, opened, sure
from ackwise.cli.showing import plain, show, show_json
from ackwise.client import Connection
from ackwise.core.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="Dead letters.")
_COLUMNS = ("id", "queue", "group", "partition", "reason", "error_type", "error", "failures", "dead_at")
_PAGE = 1000

Queue = Annotated[str | None, typer.Option("--queue", help="Only this queue's.")]
Group = Annotated[str | None, typer.Option("--group", help="Only this group's.")]
Ids = Annotated[list[str] | None, typer.Argument(help="Ids of dead letters.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many.")]


@app.command(name="list")
def list_dead(
    queue: Queue = None,
    group: Group = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Only with this reason.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="How many.")] = 100,
    offset: Annotated[int, typer.Option("--offset", help="How many to pass over.")] = 0,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """Dead letters, newest first."""
    with opened(url) as connection:
        letters = connection.dead_letters(queue, group=group, reason=reason, limit=limit, offset=offset)
    if as_json:
        show_json({"total": letters.total, "letters": [plain(letter) for letter in letters]})
        return
    show(letters, _COLUMNS, False)
    print(f"{len(letters)} of {letters.total}")


@app.command()
def redrive(
    ids: Ids = None,
    queue: Queue = None,
    group: Group = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: URL = DEFAULT_URL,
) -> None:
    """Put dead letters back at their old place: these, or all of a queue or group."""
    with opened(url) as connection:
        chosen = _chosen(connection, ids, queue, group)
        if dry_run:
            print(f"would redrive {len(chosen)}")
            return
        sure(f"Redrive {len(chosen)} dead letters?", yes)
        results: dict[str, str] = {}
        for at in range(0, len(chosen), _PAGE):
            results |= connection.redrive(chosen[at : at + _PAGE]).results
    refused = {id: result for id, result in results.items() if result != "redriven"}
    print(f"redriven {len(results) - len(refused)}")
    for id, result in refused.items():
        print(f"{id}: {result}")
    if refused:
        raise typer.Exit(1)


@app.command()
def purge(
    ids: Ids = None,
    queue: Queue = None,
    group: Group = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: URL = DEFAULT_URL,
) -> None:
    """Forget dead letters: these, or all of a queue or group."""
    with opened(url) as connection:
        chosen = _chosen(connection, ids, queue, group)
        if dry_run:
            print(f"would purge {len(chosen)}")
            return
        sure(f"Purge {len(chosen)} dead letters for good?", yes)
        print(f"purged {connection.purge_dead(chosen)}")


def _chosen(connection: Connection, ids: list[str] | None, queue: str | None, group: str | None) -> list[str]:
    """The ids meant. All of them are read first, so that what is asked about is what is done."""
    if ids:
        return ids
    if queue is None and group is None:
        raise BadInput("name dead letters by id, or all of a --queue or --group")
    chosen: list[str] = []
    while True:
        page = connection.dead_letters(queue, group=group, limit=_PAGE, offset=len(chosen))
        chosen += [letter.id for letter in page]
        if len(page) < _PAGE:
            return chosen
