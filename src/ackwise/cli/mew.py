"""`ackwise mew`: a prompt, or a file from top to bottom."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ackwise.cli.opening import DEFAULT_URL, URL
from ackwise.client.servers import is_server
from ackwise.core.errors import BadInput
from ackwise.dialects.mew.lines import Line
from ackwise.dialects.mew.script import value_of
from ackwise.mew.files import Leave, Runner
from ackwise.mew.prompting import Prompt, with_readline
from ackwise.mew.sync.session import Session
from ackwise.mew.telling import told
from ackwise.store.clock import ManualClock


def mew(
    file: Annotated[
        Path | None, typer.Argument(help="Statements to run; - reads them from the input. None: a prompt.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="A parameter, name=value; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print an object per line.")] = False,
    manual_clock: Annotated[
        bool, typer.Option("--manual-clock", help=r"The time stands still and only \clock moves it.")
    ] = False,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Go on after a statement that fails.")] = False,
    actor: Annotated[str | None, typer.Option("--actor", help="The id of the node that acts: #self.")] = None,
    url: URL = DEFAULT_URL,
) -> None:
    """Talk to the graph: declare, spawn, match, WATCH, ACK and NACK. Exit 1 when a statement of a file fails."""
    if manual_clock and is_server(url):
        raise BadInput("--manual-clock needs the store itself: a server's clock is its own")
    params = dict(_param(one) for one in param or [])
    clock = ManualClock() if manual_clock else None
    piped = file is None and not sys.stdin.isatty()
    text = sys.stdin.read() if piped or str(file) == "-" else _read(file)
    fine = True
    with Session(url, clock=clock, actor=actor) as session:
        if text is None:
            Prompt(session, with_readline(session), params=params, clock=clock).run()
        else:
            emit = _emit_json if as_json else _emit_text
            runner = Runner(session, emit, params=params, clock=clock, keep_going=keep_going)
            with contextlib.suppress(Leave):
                runner.run(text)
            fine = runner.fine
    if not fine:
        raise typer.Exit(1)


def _param(given: str) -> tuple[str, Any]:
    name, equals, value = given.partition("=")
    if not equals or not name.removeprefix("$").isidentifier():
        raise BadInput(f"--param {given}: say name=value")
    return name.removeprefix("$"), value_of(value, {})


def _read(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"{file}: {problem}") from None


def _emit_json(line: Line) -> None:
    print(msgspec.json.encode(line.as_object()).decode(), flush=True)


def _emit_text(line: Line) -> None:
    print(told(line), flush=True)
