"""`ackwise mew`: files, parameters, meta commands, exit codes; and the prompt."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ackwise.cli import main
from ackwise.mew import Session
from ackwise.mew.repl import Completer, Console, Prompt, is_complete
from tests.patience import PATIENCE
from tests.server.running import Running

FILE = r"""--# declare
-- @param $size = 3
node Job { title: String [required], size: Int = 1 }
--# work
w = WATCH j: Job [mode: consume] RETURN j
SPAWN a: Job { title = "A", size = $size }
\let d1 = $delivery_id
\clock +31s
ACK $d1
\let n = "text"
ACK $delivery_id
/*
--# not a step
\q
*/
MATCH j: Job RETURN COUNT(j) AS left, $n AS n
"""


class TextLine:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def mew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("ACKWISE_URL", f"sqlite:///{tmp_path}/f.db?durability=normal")
    monkeypatch.chdir(tmp_path)

    def run(text: str, *options: str, stdin: str | None = None) -> TextLine:
        (tmp_path / "file.mew").write_text(text)
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin or ""))
        where = ["-"] if stdin is not None else ["file.mew"]
        monkeypatch.setattr(sys, "argv", ["ackwise", "mew", *where, *options])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return TextLine(int(ended.value.code or 0), out, err)

    return run


def test_file_stops_at_the_first_statement_that_fails(mew: Any) -> None:
    said = mew(FILE, "--json", "--manual-clock")
    assert said.code == 1
    kinds = [(line["kind"], line.get("type") or line.get("statement") or line.get("name")) for line in said.lines]
    assert kinds == [
        ("step", "declare"),
        ("result", "NODE"),
        ("step", "work"),
        ("result", "WATCH"),
        ("event", "initial"),
        ("result", "SPAWN"),
        ("event", "consumed"),
        ("notice", "ACK_TIMEOUT"),
        ("event", "consumed"),
        ("error", "INVALID_DELIVERY_ID"),
    ]
    assert said.lines[-1]["line"] == 9
    assert said.lines[6]["match"]["size"] == 3


def test_keep_going_runs_the_rest_and_still_fails(mew: Any) -> None:
    said = mew(FILE, "--json", "--manual-clock", "--keep-going", "--param", "size=9")
    assert said.code == 1
    assert said.lines[6]["match"]["size"] == 9
    assert [(line["statement"], line["rows"]) for line in said.lines[-2:]] == [("ACK", []), ("MATCH", [[0, "text"]])]
    assert [line["n"] for line in said.lines if line["kind"] == "result"] == [1, 2, 3, 4, 5]


def test_keep_going_goes_on_behind_a_syntax_error(mew: Any) -> None:
    said = mew("node A {}\nSPAWN a A\nSPAWN b: A\n", "--json", "--keep-going")
    assert (said.code, [line["kind"] for line in said.lines]) == (1, ["result", "error", "result"])
    assert (said.lines[1]["line"], said.lines[1]["column"]) == (2, 9)


def test_file_that_works_ends_with_0_and_reads_well(mew: Any) -> None:
    said = mew("node A { x: Int }\nSPAWN a: A { x = 1 }\nMATCH a: A RETURN a.x\n\\dt\n\\dg\n\\h\n")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "ok NODE: 1 node"
    assert lines[1].startswith("ok SPAWN: created 1, a = #a_")
    assert lines[2:6] == ["a.x", "---", "1", "(1 row)"]
    assert lines[6:8] == ["node A { x: Int }", "       1  A"]
    assert lines[8].startswith("\\i FILE")


def test_leaving_after_a_failure_still_fails(mew: Any) -> None:
    said = mew("node A {}\nSPAWN a: Nobody\n\\q\nSPAWN b: A\n", "--json", "--keep-going")
    assert (said.code, [line["kind"] for line in said.lines]) == (1, ["result", "error"])
    assert mew("SPAWN b: A\n\\q\nSPAWN a: Nobody\n", "--json").code == 0


@pytest.mark.parametrize("odd", ["\u2028", "\x85"])
def test_line_ends_at_a_newline_only(mew: Any, odd: str) -> None:
    text = (
        f'/* a \x0c \x1e {odd} b */\nSPAWN a: A {{ t = "x{odd}y" }}\nMATCH a: A RETURN length(a.t)\nSPAWN b: Nobody\n'
    )
    said = mew("node A { t: String }\n" + text, "--json")
    assert [line.get("rows") for line in said.lines[:-1]] == [[], [], [[3]]]
    assert (said.lines[-1]["kind"], said.lines[-1]["line"]) == ("error", 5)


def test_comment_marks_inside_strings_and_comments_are_text(mew: Any) -> None:
    said = mew(
        "node A { t: String } -- see /* here\n--# one\n"
        'SPAWN a: A { t = "\\"/*" }\n\\dg\n--# two\nSPAWN b: A { t = "*/" }\n',
        "--json",
    )
    assert said.code == 0
    steps = [line["name"] for line in said.lines if line["kind"] == "step"]
    assert (steps, len(said.lines)) == (["one", "two"], 6)


def test_error_is_pointed_at(mew: Any) -> None:
    said = mew("node A { x: Int }\n\n  SPAWN a: A {\n    y = 1 }\n")
    assert said.code == 1
    assert said.out.splitlines()[1:] == [
        "error constraint: 'A' has no attribute 'y' (line 3, column 9)",
        "      SPAWN a: A {",
        "            ^",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\\clock 5s", "\\clock only goes forward"),
        ("\\clock +soon", "is not a duration"),
        ("\\let 5 = x", "\\let needs a name"),
        ("\\let x = $missing", "Parameter '$missing' not provided"),
        ("\\bogus", "there is no command \\bogus"),
        ("\\i nowhere.mew", "nowhere.mew"),
        ("\\i file.mew", "include each other too deeply"),
    ],
)
def test_meta_commands_that_fail(mew: Any, text: str, message: str) -> None:
    said = mew(text, "--manual-clock")
    assert said.code == 1
    assert message in said.out


def test_clock_is_real_unless_asked_otherwise(mew: Any) -> None:
    assert "needs --manual-clock" in mew("\\clock +5s").out


def test_wait_and_events(mew: Any) -> None:
    text = "node A {}\nv = WATCH a: A RETURN a\nSPAWN x: A\n\\wait 10ms\n\\events #v\n\\q\nSPAWN y: A"
    said = mew(text, "--json")
    assert (said.code, [line["kind"] for line in said.lines]) == (0, ["result", "result", "event", "result", "event"])


def test_statements_from_the_input(mew: Any) -> None:
    assert mew("", "--json", stdin="node A {} SPAWN a: A").lines[1]["created"] == 1


def test_usage_errors_end_with_2(mew: Any) -> None:
    assert mew("", "--param", "novalue").code == 2
    assert mew("", "--url", "http://127.0.0.1:1", "--manual-clock").code == 2


def test_file_through_a_server(mew: Any, tmp_path: Path) -> None:
    with Running(f"sqlite:///{tmp_path}/s.db?durability=normal") as server:
        said = mew(FILE.replace("\\clock +31s\nACK $d1\n", "") + "\\dt\n", "--json", "--url", server.url)
    assert said.code == 0
    assert said.lines[-2]["rows"] == [[0, "text"]]
    assert said.lines[-1]["text"].startswith("node Job {")


# the prompt


def typed(*lines: str) -> Iterator[str]:
    yield from lines


def test_prompt_prints_events_as_they_arrive(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/p.db?durability=normal"
    out = io.StringIO()
    arrived = threading.Event()
    texts = typed("node A { n: Int }", "w = WATCH a: A", "[mode: consume] RETURN a", "SPAWN a: A {", "n = 1 }")
    shown: list[str] = []

    class Watched(Console):
        def interrupt(self, line: Any) -> None:
            super().interrupt(line)
            if getattr(line, "type", "") == "consumed":
                arrived.set()

    def ask(prompt: str) -> str:
        shown.append(prompt)
        for text in texts:
            return text
        if not arrived.wait(PATIENCE):
            raise EOFError
        if shown.count("mew> ") == 4:
            return "ACK $delivery_id"
        return "\\q"

    with Session(url) as session:
        Prompt(session, Watched(ask, out)).run()
        assert session.query("MATCH a: A RETURN COUNT(a) AS n") == [{"n": 0}]
        assert Completer(session).candidates("SPA") == ["SPAWN"]
    assert shown[:5] == ["mew> ", "mew> ", "...> ", "mew> ", "...> "]
    assert "ok WATCH: watching as #w" in out.getvalue()
    assert "\r* #w consumed" in out.getvalue()
    assert "ok ACK: acked, deleted 1, attempt 1 of 3" in out.getvalue()


def test_completion_knows_words_names_and_types(tmp_path: Path) -> None:
    with Session(f"sqlite:///{tmp_path}/c.db?durability=normal") as session:
        session.run("node Customer { n: Int = 1 } edge knows(a: Customer, b: Customer) SPAWN curt: Customer")
        completer = Completer(session)
        assert completer.candidates("cu") == ["Customer", "curt"]
        assert completer.candidates("kn") == ["knows"]
        assert [completer.complete("max_", n) for n in (0, 1)] == ["max_redeliveries", None]


@pytest.mark.parametrize(
    ("text", "over"), [("TICK\n", True), ("SPAWN a: A {\n", False), ("SPAWM\n", False), ("", True)]
)
def test_statement_is_read_until_it_is_whole(text: str, over: bool) -> None:
    assert is_complete(text) is over


@pytest.mark.slow
def test_prompt_on_a_terminal(tmp_path: Path) -> None:
    """A real terminal: the test starts the command as a user does."""
    outer, inner = pty.openpty()
    environment = {**os.environ, "ACKWISE_MEW_HISTORY": str(tmp_path / "history"), "TERM": "dumb"}
    command = [str(Path(sys.executable).with_name("ackwise")), "mew", "--url", f"sqlite:///{tmp_path}/t.db"]
    with subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=environment) as process:
        os.close(inner)
        seen = b""
        for expected, answer in (
            (b"mew> ", b"node A { n: Int = 1 }\n"),
            (b"ok NODE", b"v = WATCH a: A RETURN a.n\n"),
            (b"* #v initial: 0", b"SPAWN a: A\n"),
            (b"* #v added", b"\\q\n"),
        ):
            while expected not in seen:
                seen += os.read(outer, 4096)
            os.write(outer, answer)
        assert process.wait(PATIENCE) == 0
    os.close(outer)
    assert "SPAWN a: A" in (tmp_path / "history").read_text()
