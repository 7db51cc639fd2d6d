"""`ackwise dlq`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress as Bars

from ackwise.cli.arguments import DEFAULT_URL, URL, AsJSON, Yes, opened, sure
from ackwise.cli.output import plain, show, show_json
from ackwise.cli.spark_session import Group, Html, Master, Queue, print_report_path, show_rows, spark_for
from ackwise.client import Connection
from ackwise.core.errors import BadInput
from ackwise.spark.rate_limit import RateLimit, put_back

app = typer.Typer(no_args_is_help=True, help="Dead letters.")
_COLUMNS = ("id", "queue", "group", "partition", "reason", "error_type", "error", "failures", "dead_at")
_PAGE = 1000

Ids = Annotated[list[str] | None, typer.Argument(help="Ids of dead letters.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print how many.")]


@app.command(name="list")
def list_dead(
    queue: Queue = None,
    group: Group = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Only dead letters with this reason.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Maximum number of rows.")] = 100,
    offset: Annotated[int, typer.Option("--offset", help="Number of rows to skip.")] = 0,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """List dead letters, newest first."""
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
    """Count dead letters by error, with the first and last time of each."""
    now = datetime.now(UTC)
    with spark_for("dead letters", url, master, queue) as spark:
        from ackwise.spark.jobs import dead_letter_report
        from ackwise.spark.jobs.dead_letter_report import summarised
        from ackwise.spark.jobs.tables import collected, table
        from ackwise.spark.reports import write_dead_letter_report

        if html is not None:
            letters = table(spark, url, "dead_letters", queue=queue, group=group)
            write_dead_letter_report(html, summarised(letters, now, queue=queue, group=group))
        rows = collected(dead_letter_report(spark, url, queue, group))
    from ackwise.spark.reports.columns import ERRORS

    show_rows(rows, ERRORS, as_json, "no dead letters")
    print_report_path(html)


@app.command()
def redrive(
    ids: Ids = None,
    queue: Queue = None,
    group: Group = None,
    where: Annotated[
        str | None,
        typer.Option("--where", help="Only dead letters that match this Spark SQL: reason = 'rejected'."),
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Maximum per second.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: URL = DEFAULT_URL,
    master: Master = None,
) -> None:
    """Put dead letters back at their old position: by id, by --queue, by --group or by --where."""
    pace = RateLimit(rate)
    if where is not None and ids:
        raise BadInput("pass ids or --where, not both")
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
    """Delete dead letters: by id, by --queue or by --group."""
    with opened(url) as connection:
        chosen = _chosen(connection, ids, queue, group)
        if dry_run:
            print(f"would purge {len(chosen)}")
            return
        sure(f"Delete {len(chosen)} dead letters? This cannot be undone.", yes)
        print(f"purged {connection.purge_dead(chosen)}")


def _matching(
    url: str, master: str | None, where: str, queue: str | None, group: str | None, *, only_shown: bool
) -> list[str]:
    """Ids of the dead letters that match `where`. With `only_shown` it also prints their counts by error."""
    with spark_for("dead letters", url, master, queue) as spark:
        from ackwise.spark.jobs.redrive_job import DeadLetterSelection
        from ackwise.spark.jobs.tables import collected

        chosen = DeadLetterSelection(spark, url, where, queue=queue, group=group)
        ids = chosen.ids()
        kinds = collected(chosen.counted()) if only_shown else []
    if kinds:
        from ackwise.spark.reports.columns import CHOSEN

        show_rows(kinds, CHOSEN, False, "")
    return ids


def _chosen(connection: Connection, ids: list[str] | None, queue: str | None, group: str | None) -> list[str]:
    """Ids to act on. It reads all of them first, so that the confirmation shows the real number."""
    if ids:
        return ids
    if queue is None and group is None:
        raise BadInput("pass ids, or --queue or --group for all of their dead letters")
    chosen: list[str] = []
    while True:
        page = connection.dead_letters(queue, group=group, limit=_PAGE, offset=len(chosen))
        chosen += [letter.id for letter in page]
        if len(page) < _PAGE:
            return chosen
