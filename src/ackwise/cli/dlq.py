"""`ackwise dlq`: dead letters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress as Bars

from ackwise.cli.opening import DEFAULT_URL, URL, AsJSON, Yes, opened, sure
from ackwise.cli.showing import plain, show, show_json
from ackwise.cli.sparking import Group, Html, Master, Queue, say_where, show_rows, sparked
from ackwise.client import Connection
from ackwise.core.errors import BadInput
from ackwise.spark.pacing import Pace, put_back

app = typer.Typer(no_args_is_help=True, help="Dead letters.")
_COLUMNS = ("id", "queue", "group", "partition", "reason", "error_type", "error", "failures", "dead_at")
_PAGE = 1000

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
def report(
    queue: Queue = None,
    group: Group = None,
    url: URL = DEFAULT_URL,
    master: Master = None,
    as_json: AsJSON = False,
    html: Html = None,
) -> None:
    """What died, how often, since when; the same error is one row."""
    now = datetime.now(UTC)
    with sparked("dead letters", url, master, queue) as spark:
        from ackwise.spark.jobs import dead_letter_report
        from ackwise.spark.jobs.dead_letters import summarised
        from ackwise.spark.jobs.tables import collected, table
        from ackwise.spark.reports import write_dead_letter_report

        if html is not None:
            letters = table(spark, url, "dead_letters", queue=queue, group=group)
            write_dead_letter_report(html, summarised(letters, now, queue=queue, group=group))
        rows = collected(dead_letter_report(spark, url, queue, group))
    from ackwise.spark.reports.columns import ERRORS

    show_rows(rows, ERRORS, as_json, "no dead letters")
    say_where(html)


@app.command()
def redrive(
    ids: Ids = None,
    queue: Queue = None,
    group: Group = None,
    where: Annotated[
        str | None, typer.Option("--where", help="Only those that this Spark SQL is true of: reason = 'rejected'.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="At most so many per second.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: URL = DEFAULT_URL,
    master: Master = None,
) -> None:
    """Put dead letters back at their old place: these, or all of a queue or group, or those that --where chooses."""
    pace = Pace(rate)
    if where is not None and ids:
        raise BadInput("name dead letters by id, or choose them with --where, not both")
    if where is not None:
        chosen = _matching(url, master, where, queue, group, only_shown=dry_run)
    else:
        with opened(url) as connection:
            chosen = _chosen(connection, ids, queue, group)
    if dry_run:
        print(f"would redrive {len(chosen)}")
        return
    sure(f"Redrive {len(chosen)} dead letters?", yes)
    console = Console(stderr=True)
    with (
        opened(url) as connection,
        Bars(console=console, transient=True, disable=not console.is_interactive) as bars,
    ):
        bar = bars.add_task("redriven", total=len(chosen))
        results = put_back(connection, chosen, pace, lambda done, _: bars.update(bar, completed=done))
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


def _matching(
    url: str, master: str | None, where: str, queue: str | None, group: str | None, *, only_shown: bool
) -> list[str]:
    """The ids of the dead letters that an expression is true of; what they are like, if that is all that is wanted."""
    with sparked("dead letters", url, master, queue) as spark:
        from ackwise.spark.jobs.redriving import Chosen
        from ackwise.spark.jobs.tables import collected

        chosen = Chosen(spark, url, where, queue=queue, group=group)
        ids = chosen.ids()
        kinds = collected(chosen.counted()) if only_shown else []
    if kinds:
        from ackwise.spark.reports.columns import CHOSEN

        show_rows(kinds, CHOSEN, False, "")
    return ids


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
