"""Interactive prompt: reads statements, runs them, and prints events as they come."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

from ackwise.clock import ManualClock
from ackwise.core.errors import AckwiseError
from ackwise.graph.language import parse
from ackwise.mew.formatter import format_line
from ackwise.mew.script_runner import Quit, ScriptRunner
from ackwise.mew.sync.session import Session
from ackwise.protocols.mew.output_records import Line

PROMPT, MORE = "mew> ", "...> "
MOST_HISTORY = 5000
LOOK_FOR = 1.0
_WORDS = (
    "ontology type node edge SPAWN LINK SET KILL UNLINK MATCH INSPECT BEGIN COMMIT ROLLBACK TICK WATCH ACK NACK PAUSE "
    "RESUME CANCEL ALTER WHERE RETURN ORDER BY LIMIT OFFSET RETURNING AS mode consume watch group ordering delivery "
    "visibility buffer on_full ack_timeout max_redeliveries dead_letter initial filter deliver_on no_retry String Int "
    "Float Bool Timestamp Duration \\i \\events \\wait \\let \\clock \\dt \\dg \\h \\q"
)


class Console:
    """Input and output of the prompt."""

    def __init__(self, ask: Callable[[str], str] = input, out: TextIO | None = None) -> None:
        self.ask, self._out = ask, out or sys.stdout
        self._lock = threading.Lock()
        self.redraw: Callable[[], None] = lambda: None

    def show(self, line: Line) -> None:
        with self._lock:
            self._out.write(format_line(line) + "\n")
            self._out.flush()

    def interrupt(self, line: Line) -> None:
        """Print a line while the user types, and redraw the input."""
        with self._lock:
            self._out.write("\r" + format_line(line) + "\n")
            self._out.flush()
            self.redraw()


class Prompt:
    """Interactive loop over one session."""

    def __init__(
        self,
        session: Session,
        console: Console,
        *,
        params: Mapping[str, Any] | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self._session, self._console = session, console
        self._runner = ScriptRunner(session, console.show, params=params, clock=clock, keep_going=True, events=0)
        self._closed = threading.Event()

    def run(self) -> None:
        """Run until `\\q` or the end of input."""
        self._session.run("")
        listener = threading.Thread(target=self._listen, name="mew-events", daemon=True)
        listener.start()
        try:
            while (text := self._read()) is not None:
                try:
                    self._runner.run(text)
                except Quit:
                    return
                except AckwiseError as problem:
                    print(f"error {problem.message}", file=sys.stderr)
        finally:
            self._closed.set()
            listener.join()

    def _read(self) -> str | None:
        """Read one statement. It ends at the line that completes it, or at an empty line."""
        text = ""
        try:
            while True:
                line = self._console.ask(MORE if text else PROMPT)
                text += line + "\n"
                if not line.strip() or line.lstrip().startswith("\\") or is_complete(text):
                    return text
        except EOFError:
            return text if text.strip() else None
        except KeyboardInterrupt:
            return ""

    def _listen(self) -> None:
        """Fetch and print events, one at a time, so that each delivery begins when it is printed."""
        while not self._closed.is_set():
            try:
                lines = self._session.fetch(1, wait=LOOK_FOR)
            except AckwiseError as problem:
                print(f"error {problem.message}", file=sys.stderr)
                self._closed.wait(LOOK_FOR)
                continue
            for line in lines:
                delivery_id = getattr(line, "delivery_id", None)
                if delivery_id is not None:
                    self._runner.params["delivery_id"] = delivery_id
                self._console.interrupt(line)


def is_complete(text: str) -> bool:
    """Whether the text is not cut off at its end. An error in the middle counts as complete, too."""
    error = parse(text).error
    return error is None or "ends too early" not in error.message


def with_readline(session: Session) -> Console:
    """A console with history and completion."""
    console = Console()
    try:
        import readline
    except ImportError:
        return console
    history = Path(os.environ.get("ACKWISE_MEW_HISTORY", Path.home() / ".ackwise_mew_history"))
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(MOST_HISTORY)
    readline.set_completer_delims(" \t\n(){}[],;:=#$.")
    readline.set_completer(Completer(session).complete)
    readline.parse_and_bind("tab: complete")
    console.redraw = readline.redisplay

    def ask(prompt: str) -> str:
        line = input(prompt)
        with contextlib.suppress(OSError):
            readline.write_history_file(history)
        return line

    console.ask = ask
    return console


class Completer:
    """Completes keywords, names of the session and types of the graph."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._candidates: list[str] = []

    def complete(self, text: str, number: int) -> str | None:
        if number == 0:
            self._candidates = self.candidates(text)
        return self._candidates[number] if number < len(self._candidates) else None

    def candidates(self, text: str) -> list[str]:
        prefix = text.lower()
        words = [*_WORDS.split(), *self._session.names, *self._types()]
        return sorted({word for word in words if word.lower().startswith(prefix)})

    def _types(self) -> list[str]:
        lines: list[Line] = []
        with contextlib.suppress(AckwiseError):
            self._session.describe("dt", lines.append)
        words = " ".join(format_line(line) for line in lines).replace("(", " ").split()
        return [after for before, after in pairwise(words) if before in ("node", "edge", "type")]
