"""`ackwise top`: queues, rates and consumers, live."""

from __future__ import annotations

import contextlib
import select
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ackwise.cli.arguments import DEFAULT_URL, URL, AsJSON, opened
from ackwise.cli.output import counted, show_json, table, width
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.spark.reports.columns import Column, moment, number

if TYPE_CHECKING:
    from ackwise.client import Connection

REDRAW_SECONDS = 2.0
MOST_QUEUES = 1000
MOST_CONSUMERS = 10_000
_COLUMNS = (
    Column("name", "queue"),
    Column("pending", "pending", "number"),
    Column("processing", "processing", "number"),
    Column("pushed_rate", "in/s", "number"),
    Column("acked_rate", "out/s", "number"),
    Column("failed_rate", "retry/s", "number"),
    Column("dead", "dead", "number"),
    Column("consumers", "consumers", "number"),
    Column("scheduled", "scheduled", "number"),
    Column("state", "state"),
)
_OPTIONAL = ("scheduled", "failed_rate", "consumers", "state", "processing", "dead")
_GAP = "  "
_HEAD_OPTIONAL = (3, 0, 4, 6, 5, 1)
"""Parts of the head line, in the order in which a narrow terminal drops them."""


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
    minutes: Annotated[int, typer.Option("--minutes", min=1, max=1440, help="Rates of this many minutes.")] = 1,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """Show queues, rates and consumers, live. Press q to quit."""
    with opened(url) as connection:
        if as_json:
            show_json(_rows(connection, minutes))
        elif once:
            print(frame(connection, minutes, width(), None))
        elif not sys.stdout.isatty() or not sys.stdin.isatty():
            raise BadInput("top needs a terminal; pass --once for one frame")
        else:
            _live(connection, minutes)


def _rows(connection: Connection, minutes: int) -> list[dict[str, Any]]:
    """Queues with the largest number of pending messages first."""
    from ackwise.cli.rates import queue_rows

    consumers: dict[str, int] = {}
    for row in connection.consumers(limit=MOST_CONSUMERS):
        consumers[row.queue] = consumers.get(row.queue, 0) + 1
    rows = queue_rows(connection, MOST_QUEUES, minutes)
    for queue in rows:
        queue["consumers"] = consumers.get(queue["name"], 0)
        queue["state"] = "paused" if queue["paused"] else ""
    return sorted(rows, key=lambda queue: (-queue["pending"], queue["name"]))


def frame(connection: Connection, minutes: int, columns: int, lines: int | None) -> str:
    """One frame: a line of totals and a table of queues that fits the terminal."""
    from ackwise.cli.rates import now_of

    rows = _rows(connection, minutes)
    totals = {name: sum(row[name] for row in rows) for name in ("pending", "processing", "dead")}
    rates = {name: sum(row[name] for row in rows) for name in ("pushed_rate", "acked_rate")}
    head = _head(
        [
            moment(now_of(connection)),
            counted(len(rows), "queue"),
            f"{number(totals['pending'])} pending",
            f"{number(totals['processing'])} processing",
            f"{number(totals['dead'])} dead",
            f"in {number(rates['pushed_rate'])}/s",
            f"out {number(rates['acked_rate'])}/s",
        ],
        columns,
    )
    if not rows:
        return f"{head}\n\nno queues; create one with: ackwise queue create NAME"
    text = table(rows, _COLUMNS, columns, _OPTIONAL).splitlines()
    if lines is not None and len(text) > lines - 3:
        text = [*text[: max(1, lines - 4)], f"… {counted(len(rows), 'queue')} in all: ackwise queue list"]
    return "\n".join([head, "", *text])


def _head(parts: list[str], columns: int) -> str:
    """The totals in one line of at most `columns` characters, without the parts that do not fit."""
    parts = list(parts)
    for at in _HEAD_OPTIONAL:
        if len(_GAP.join(part for part in parts if part)) <= columns:
            break
        parts[at] = ""
    return _GAP.join(part for part in parts if part)[:columns]


def _live(connection: Connection, minutes: int) -> None:
    """Redraw every two seconds until q or Ctrl-C. If the server does not answer, shows the error and tries again."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def drawn() -> Text:
        size = shutil.get_terminal_size()
        try:
            return Text(frame(connection, minutes, size.columns, size.lines))
        except AckwiseError as problem:
            return Text(f"{problem.message}\n\ntrying again every {REDRAW_SECONDS:g} s; press q to quit")

    with (
        contextlib.suppress(KeyboardInterrupt),
        _keys() as key,
        Live(drawn(), console=Console(), screen=True, auto_refresh=False) as live,
    ):
        live.refresh()
        while key(REDRAW_SECONDS) not in ("q", "Q"):
            live.update(drawn(), refresh=True)


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """A function that waits for a key, with the terminal in a mode that passes each key at once."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def key(seconds: float) -> str:
        ready, _, _ = select.select([terminal], [], [], seconds)
        return sys.stdin.read(1) if ready else ""

    tty.setcbreak(terminal)
    try:
        yield key
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
