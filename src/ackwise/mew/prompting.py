"""The prompt: lines in, results out, events as they arrive."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

from ackwise.core.errors import AckwiseError
from ackwise.dialects.mew.language import parse
from ackwise.dialects.mew.lines import Line
from ackwise.mew.files import Leave, Runner
from ackwise.mew.sync.session import Session
from ackwise.mew.telling import told
from ackwise.store.clock import ManualClock

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
    """Where the prompt reads and writes; `input` comes from readline when somebody sits there."""

    def __init__(self, ask: Callable[[str], str] = input, out: TextIO | None = None) -> None:
        self.ask, self._out = ask, out or sys.stdout
        self._lock = threading.Lock()
        self.redraw: Callable[[], None] = lambda: None

    def say(self, line: Line) -> None:
        with self._lock:
            self._out.write(told(line) + "\n")
            self._out.flush()

    def interrupt(self, line: Line) -> None:
        """Something to say while somebody types."""
        with self._lock:
            self._out.write("\r" + told(line) + "\n")
            self._out.flush()
            self.redraw()


class Prompt:
    """One person's session."""

    def __init__(
        self,
        session: Session,
        console: Console,
        *,
        params: Mapping[str, Any] | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self._session, self._console = session, console
        self._runner = Runner(session, console.say, params=params, clock=clock, keep_going=True, events=0)
        self._over = threading.Event()

    def run(self) -> None:
        """Until `\\q` or the end of input."""
        self._session.run("")
        listener = threading.Thread(target=self._listen, name="mew-events", daemon=True)
        listener.start()
        try:
            while (text := self._read()) is not None:
                try:
                    self._runner.run(text)
                except Leave:
                    return
                except AckwiseError as problem:
                    print(f"error {problem.message}", file=sys.stderr)
        finally:
            self._over.set()
            listener.join()

    def _read(self) -> str | None:
        """A statement may take several lines: it is over when it is whole, or at an empty line."""
        text = ""
        try:
            while True:
                line = self._console.ask(MORE if text else PROMPT)
                text += line + "\n"
                if not line.strip() or line.lstrip().startswith("\\") or whole(text):
                    return text
        except EOFError:
            return text if text.strip() else None
        except KeyboardInterrupt:
            return ""

    def _listen(self) -> None:
        """Each event is handed over when it is printed."""
        while not self._over.is_set():
            try:
                lines = self._session.fetch(1, wait=LOOK_FOR)
            except AckwiseError as problem:
                print(f"error {problem.message}", file=sys.stderr)
                self._over.wait(LOOK_FOR)
                continue
            for line in lines:
                delivery_id = getattr(line, "delivery_id", None)
                if delivery_id is not None:
                    self._runner.params["delivery_id"] = delivery_id
                self._console.interrupt(line)


def whole(text: str) -> bool:
    """Whether nothing is missing at the end of it; a mistake in the middle is not mended by typing on."""
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

    def ask(shown: str) -> str:
        line = input(shown)
        with contextlib.suppress(OSError):
            readline.write_history_file(history)
        return line

    console.ask = ask
    return console


class Completer:
    """Words of the language, names of the session, types of the graph."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._found: list[str] = []

    def complete(self, text: str, number: int) -> str | None:
        if number == 0:
            self._found = self.candidates(text)
        return self._found[number] if number < len(self._found) else None

    def candidates(self, text: str) -> list[str]:
        wanted = text.lower()
        words = [*_WORDS.split(), *self._session.names, *self._types()]
        return sorted({word for word in words if word.lower().startswith(wanted)})

    def _types(self) -> list[str]:
        lines: list[Line] = []
        with contextlib.suppress(AckwiseError):
            self._session.describe("dt", lines.append)
        words = " ".join(told(line) for line in lines).replace("(", " ").split()
        return [after for before, after in pairwise(words) if before in ("node", "edge", "type")]
