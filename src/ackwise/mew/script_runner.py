"""Runs files of statements and meta commands in a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, assert_never

from ackwise.clock import ManualClock
from ackwise.graph.errors import GraphError
from ackwise.graph.language import portions
from ackwise.graph.language.durations import milliseconds
from ackwise.mew.sync.session import Session
from ackwise.protocols.mew.output_records import EventRecord, Line, StepLine, TextLine, error_line
from ackwise.protocols.mew.script import Meta, ParamDefault, StepMark, Text, assignment, pieces, value_of

MOST_EVENTS = 1000
DEEPEST = 20
HELP = """\\i FILE        run a file
\\events [#w]   fetch events now, of one watch or of all
\\wait [5s]     wait for an event
\\let d = ...   give a parameter a value: a literal or $another
\\clock +31s    move the clock (with --manual-clock)
\\dt            the types
\\dg            how many nodes and edges there are of each
\\h             this help
\\q             leave"""


class Quit(Exception):
    """The meta command `\\q`."""


class ScriptRunner:
    """Runs the pieces of files in a session, and passes all lines to `emit`."""

    def __init__(
        self,
        session: Session,
        emit: Callable[[Line], object],
        *,
        params: Mapping[str, Any] | None = None,
        clock: ManualClock | None = None,
        keep_going: bool = False,
        events: int = MOST_EVENTS,
    ) -> None:
        self.session, self._emit, self._clock = session, emit, clock
        self.params: dict[str, Any] = dict(params or {})
        self._preset = frozenset(self.params)
        self._keep_going, self._events = keep_going, events
        self._depth = 0
        self.fine = True
        """Whether everything has succeeded so far."""

    def run(self, text: str) -> bool:
        """Run a file. Returns False after any error. Without `keep_going` the first error ends the run."""
        fine = True
        for piece in pieces(text):
            try:
                succeeded = self._piece(piece)
            except GraphError as problem:
                if not isinstance(piece, Text):
                    problem.at = piece.line, 1
                self.show(error_line(problem))
                succeeded = False
            fine = fine and succeeded
            self.fine = self.fine and succeeded
            if not succeeded and not self._keep_going:
                return False
        return fine

    def _piece(self, piece: Text | Meta | StepMark | ParamDefault) -> bool:
        match piece:
            case Text(text=text, above=above):
                return self._text(text, above)
            case StepMark(name=name):
                self.show(StepLine(name))
            case ParamDefault(name=name, value=value):
                if name not in self._preset:
                    self.params[name] = value_of(value, self.params)
            case Meta():
                return self._meta(piece)
            case _:
                assert_never(piece)
        return True

    def _text(self, text: str, above: int) -> bool:
        """Run statements in portions: a file may be longer than the limit of one text."""
        fine = True
        for portion in portions(text):
            succeeded = self.session.stream(
                portion, self.show, self.params, above=above, keep_going=self._keep_going, events=self._events
            )
            fine = fine and succeeded
            if not succeeded and not self._keep_going:
                return False
            above += portion.count("\n")
        return fine

    def show(self, line: Line) -> None:
        """Emit a line. The id of the last delivery becomes the parameter `delivery_id`."""
        if isinstance(line, EventRecord) and line.delivery_id is not None:
            self.params["delivery_id"] = line.delivery_id
        self._emit(line)

    def _meta(self, meta: Meta) -> bool:
        match meta.word:
            case "let":
                name, value = assignment(meta.rest, self.params)
                self.params[name] = value
            case "clock":
                self._move(meta.rest)
                self._fetch(None, 0.0)
            case "wait":
                seconds = milliseconds_of(meta.rest or "1s") / 1000
                self._fetch(None, 0.0 if self._clock is not None else seconds)
            case "events":
                self._fetch(meta.rest or None, 0.0)
            case "i":
                return self._include(meta.rest)
            case "dt" | "dg":
                self.session.describe(meta.word, self.show)
            case "h":
                self.show(TextLine(HELP))
            case "q":
                raise Quit
            case word:
                raise GraphError("parse_error", f"there is no command \\{word}; \\h lists them")
        return True

    def _fetch(self, watch: str | None, wait: float) -> None:
        for line in self.session.fetch(self._events or MOST_EVENTS, watch=watch, wait=wait):
            self.show(line)

    def _move(self, rest: str) -> None:
        if self._clock is None:
            raise GraphError("constraint", "\\clock needs --manual-clock: the time is the real one")
        if not rest.startswith("+"):
            raise GraphError("parse_error", "\\clock only goes forward: \\clock +31s")
        self._clock.advance(milliseconds_of(rest[1:].strip()) / 1000)

    def _include(self, name: str) -> bool:
        if self._depth >= DEEPEST:
            raise GraphError("constraint", f"{name}: files include each other too deeply")
        try:
            text = Path(name).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise GraphError("constraint", f"{name}: {problem}") from None
        self._depth += 1
        try:
            return self.run(text)
        finally:
            self._depth -= 1


def milliseconds_of(text: str) -> int:
    try:
        return milliseconds(text)
    except (ValueError, KeyError):
        raise GraphError("parse_error", f"{text!r} is not a duration such as 31s") from None
