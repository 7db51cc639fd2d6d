"""`ackwise dlq`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ackwise.cli.arguments import DEFAULT_URL, URL, AnyGroup, AnyQueue, AsJSON, DryRun, Yes, check_group, opened, sure
from ackwise.cli.output import Progress, counted, fields_of, group_shown, show_fields, show_json, show_rows
from ackwise.cli.spark_session import Engine, EngineName, Html, Master, check_master, print_report_path, spark_for
from ackwise.core.errors import BadInput, UnknownDeadLetter
from ackwise.spark.reports.columns import CHOSEN, ERRORS, Column

if TYPE_CHECKING:
    from ackwise.client import Connection

app = typer.Typer(no_args_is_help=True, help="Dead letters.")
_COLUMNS = (
    Column("id", "id", "id"),
    Column("queue", "queue"),
    Column("group", "group"),
    Column("partition", "partition"),
    Column("reason", "reason"),
    Column("error_type", "type"),
    Column("error", "error", "error"),
    Column("failures", "failures", "number"),
    Column("dead_at", "died", "moment"),
)
_OPTIONAL = ("failures", "error_type", "partition", "dead_at", "group", "error", "reason")
_PAGE = 1000

Ids = Annotated[list[str] | None, typer.Argument(help="Ids of dead letters.")]


@app.command(name="list")
def list_dead(
    queue: AnyQueue = None,
    group: AnyGroup = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Only dead letters with this reason.")] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="Only errors of this kind, as dlq report prints it.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Maximum number of rows.")] = 100,
    offset: Annotated[int, typer.Option("--offset", help="Number of rows to skip.")] = 0,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """List dead letters, newest first."""
    with opened(url) as connection:
        letters = connection.dead_letters(queue, group=group, reason=reason, kind=kind, limit=limit, offset=offset)
        if not letters.total:
            check_group(connection, queue, group)
    rows = [fields_of(letter) for letter in letters]
    show_rows(rows, _COLUMNS, as_json, "no dead letters; nothing to do", optional=_OPTIONAL)
    if rows and not as_json:
        print(f"{len(letters)} of {counted(letters.total, 'dead letter')}")


@app.command(name="show")
def show_dead(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the dead letter.")],
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """Show a dead letter with its payload, error and history."""
    with opened(url) as connection:
        letter = _letter(connection, id)
    if as_json:
        show_json(letter)
        return
    history = letter.pop("history")
    letter["group"] = group_shown(letter["group"])
    for name in ("payload", "headers"):
        letter[name] = msgspec.json.encode(letter[name]).decode()
    show_fields(letter.items())
    show_fields((f"history {number}", _event(event)) for number, event in enumerate(history, 1))


def _letter(connection: Connection, id: str) -> dict[str, Any]:
    from ackwise.client.results import DeadLetter, as_result
    from ackwise.core.queries import ListDead

    letters = connection.transport.ask(ListDead(ids=[id])).letters
    if not letters:
        raise UnknownDeadLetter(f"there is no dead letter {id!r}; list them with: ackwise dlq list")
    return fields_of(as_result(letters[0], DeadLetter))


def _event(event: dict[str, Any]) -> str:
    from ackwise.wire.timestamps import moment

    at = moment(event["at"]).strftime("%Y-%m-%d %H:%M:%S") if isinstance(event.get("at"), int) else ""
    parts = [at, str(event.get("event", "")), str(event.get("owner") or ""), str(event.get("error") or "")]
    return " ".join(part for part in parts if part)


@app.command()
def report(
    queue: AnyQueue = None,
    group: AnyGroup = None,
    url: URL = DEFAULT_URL,
    engine: EngineName = Engine.LOCAL,
    master: Master = None,
    as_json: AsJSON = False,
    html: Html = None,
) -> None:
    """Count dead letters by error, with the first and last time of each."""
    check_master(engine, master)
    now = datetime.now(UTC)
    if engine is Engine.SPARK:
        with spark_for("dead letters", url, master, queue) as spark:
            from ackwise.spark.jobs import dead_letter_report
            from ackwise.spark.jobs.dead_letter_report import summarised
            from ackwise.spark.jobs.tables import collected, table

            letters = table(spark, url, "dead_letters", queue=queue, group=group)
            summary = None if html is None else summarised(letters, now, queue=queue, group=group)
            rows = collected(dead_letter_report(spark, url, queue, group))
    else:
        from ackwise.cli import local_jobs

        with opened(url) as connection:
            transport = connection.transport
            rows = local_jobs.dead_letter_report(transport, queue, group)
            summary = None if html is None else local_jobs.summarised(transport, queue, group, now)
    if not rows and group is not None:
        with opened(url) as connection:
            check_group(connection, queue, group)
    if html is not None and summary is not None:
        from ackwise.spark.reports import write_dead_letter_report

        write_dead_letter_report(html, summary)
    show_rows(rows, ERRORS, as_json, "no dead letters", optional=("first_at", "last_at", "group", "reason"))
    print_report_path(html)


@app.command()
def redrive(
    ids: Ids = None,
    queue: AnyQueue = None,
    group: AnyGroup = None,
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
    from ackwise.spark.rate_limit import RateLimit, put_back

    pace = RateLimit(rate)
    if where is not None and ids:
        raise BadInput("pass ids or --where, not both")
    if where is not None:
        chosen = _matching(url, master, where, queue, group, only_shown=dry_run)
    else:
        with opened(url) as connection:
            chosen = _chosen(connection, ids, queue, group, "put back")
    if not chosen and group is not None:
        with opened(url) as connection:
            check_group(connection, queue, group)
    if dry_run:
        print(f"would redrive {counted(len(chosen), 'dead letter')}")
        return
    if not chosen:
        print("no dead letters match; nothing was put back")
        return
    sure(f"redrive {counted(len(chosen), 'dead letter')}", yes)
    progress = Progress("redriven")
    with opened(url) as connection:
        results = put_back(connection, chosen, pace, lambda done, _: progress(done))
    progress.end()
    refused = {id: result for id, result in results.items() if result != "redriven"}
    print(f"redriven {counted(len(results) - len(refused), 'dead letter')}")
    for id, result in refused.items():
        print(f"{id}: {result}")
    if refused:
        raise typer.Exit(1)


@app.command()
def purge(
    ids: Ids = None,
    queue: AnyQueue = None,
    group: AnyGroup = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: URL = DEFAULT_URL,
) -> None:
    """Delete dead letters: by id, by --queue or by --group."""
    with opened(url) as connection:
        chosen = _chosen(connection, ids, queue, group, "deleted")
        if not chosen:
            check_group(connection, queue, group)
        if dry_run:
            print(f"would purge {counted(len(chosen), 'dead letter')}")
            return
        if not chosen:
            print("no dead letters match; nothing was deleted")
            return
        sure(f"delete {counted(len(chosen), 'dead letter')} for ever", yes)
        purged = sum(connection.purge_dead(chosen[at : at + _PAGE]) for at in range(0, len(chosen), _PAGE))
    print(f"purged {counted(purged, 'dead letter')}")
    if purged < len(chosen):
        gone = counted(len(chosen) - purged, "dead letter")
        raise UnknownDeadLetter(f"{gone} disappeared during the command; another command purged or redrove them")


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
        show_rows(kinds, CHOSEN, False, "")
    return ids


def _chosen(
    connection: Connection, ids: list[str] | None, queue: str | None, group: str | None, done: str
) -> list[str]:
    """Ids of the chosen dead letters. Reads all ids first, so that the confirmation shows the real number.

    If a named dead letter does not exist, raises an error with the word `done`: "nothing was redriven".
    """
    if ids:
        return _existing(connection, list(dict.fromkeys(ids)), done)
    if queue is None and group is None:
        raise BadInput("pass ids, or --queue or --group for all of their dead letters")
    chosen: list[str] = []
    while True:
        page = connection.dead_letters(queue, group=group, limit=_PAGE, offset=len(chosen))
        chosen += [letter.id for letter in page]
        if len(page) < _PAGE:
            return chosen


def _existing(connection: Connection, ids: list[str], done: str) -> list[str]:
    from ackwise.core.queries import ListDead

    existing: set[str] = set()
    for at in range(0, len(ids), _PAGE):
        query = ListDead(ids=ids[at : at + _PAGE], limit=_PAGE)
        while True:
            page = connection.transport.ask(query)
            existing.update(letter.id for letter in page.letters)
            if page.next is None:
                break
            query.after = page.next
    missing = [repr(id) for id in ids if id not in existing]
    if missing:
        what = "there is no dead letter" if len(missing) == 1 else "these dead letters do not exist:"
        hint = "list the dead letters with: ackwise dlq list"
        raise UnknownDeadLetter(f"{what} {', '.join(missing)}; nothing was {done}; {hint}")
    return ids
