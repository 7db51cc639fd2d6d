"""`ackwise mew`: a prompt, or a file of statements."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ackwise.cli.arguments import DEFAULT_URL, URL
from ackwise.client.server_url import is_server
from ackwise.clock import ManualClock
from ackwise.core.errors import BadInput

if TYPE_CHECKING:
    from ackwise.protocols.mew.output_records import Line


def mew(
    file: Annotated[
        Path | None, typer.Argument(help="File with statements; - reads stdin. Without a file: a prompt.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="Parameter as name=value; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    manual_clock: Annotated[
        bool, typer.Option("--manual-clock", help=r"Stop the clock; only \clock moves it.")
    ] = False,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Continue after a statement that fails.")] = False,
    actor: Annotated[str | None, typer.Option("--actor", help="Id of the acting node, #self.")] = None,
    url: URL = DEFAULT_URL,
) -> None:
    """Run MEW statements on the graph, from a file or at a prompt. A failing statement of a file exits with 1."""
    # Imported here, so that other commands need no parser.
    from ackwise.mew.repl import Prompt, with_readline
    from ackwise.mew.script_runner import Quit, ScriptRunner
    from ackwise.mew.sync.session import Session

    if manual_clock and is_server(url):
        raise BadInput("--manual-clock needs the store itself, not a server; pass the store's URL")
    params = dict(_param(text) for text in param or [])
    clock = ManualClock() if manual_clock else None
    piped = file is None and not sys.stdin.isatty()
    text = sys.stdin.read() if piped or str(file) == "-" else _read(file)
    fine = True
    with Session(url, clock=clock, actor=actor) as session:
        if text is None:
            Prompt(session, with_readline(session), params=params, clock=clock).run()
        else:
            emit = _emit_json if as_json else _emit_text
            runner = ScriptRunner(session, emit, params=params, clock=clock, keep_going=keep_going)
            with contextlib.suppress(Quit):
                runner.run(text)
            fine = runner.fine
    if not fine:
        raise typer.Exit(1)


def _param(given: str) -> tuple[str, Any]:
    from ackwise.protocols.mew.script import value_of

    name, equals, value = given.partition("=")
    if not equals or not name.removeprefix("$").isidentifier():
        raise BadInput(f"--param {given}: write it as name=value")
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
    from ackwise.mew.formatter import format_line

    print(format_line(line), flush=True)
