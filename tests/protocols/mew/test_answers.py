"""Answers of one call: bounded over all statements, counted with all that they hold, and written in pieces."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from ackwise.clock import ManualClock
from ackwise.engine.statement_limits import StatementLimits, weight
from ackwise.graph.commands import Done
from ackwise.mew import MewError, Session
from ackwise.protocols.mew import answer_stream as answer
from ackwise.protocols.mew.answer_stream import CollectedAnswer
from ackwise.protocols.mew.output_records import Result, TextLine
from tests.broker.watched import until
from tests.mew.prompt import Prompt
from tests.patience import PATIENCE
from tests.protocols.mew import abandoned
from tests.server.process import ServerProcess
from tests.server.running import Running

LONG = 20_000
LIMITS = StatementLimits(rows=50, bytes=1 << 20)


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[Running]:
    """One node with a string of 20 kB; a call may return 1 MiB."""
    with Running(f"sqlite:///{tmp_path}/graph.db?durability=normal", clock, statement=LIMITS) as running:
        with Session(running.url) as session:
            session.run("node B { n: String } SPAWN b: B { n = $n }", {"n": "x" * LONG})
        yield running


def post(server: Running, text: str, **more: Any) -> list[dict[str, Any]]:
    answer = httpx2.post(f"{server.url}/mew", json={"text": text, **more}, timeout=PATIENCE).raise_for_status().json()
    lines: list[dict[str, Any]] = answer["lines"]
    return lines


def columns(number: int, of: str = "b.n") -> str:
    return "MATCH b: B RETURN " + ", ".join(f"{of} AS c{one}" for one in range(number))


@pytest.mark.parametrize(
    "text",
    [
        columns(60),
        columns(60, "b"),
        columns(60, 'b.n ++ "y"'),
        columns(60, "MAX(b.n)"),
        columns(1, "[" + ", ".join(["b.n"] * 60) + "]"),
        columns(1, "[[" + ", ".join(["b"] * 60) + "]]"),
        columns(60) + ", COUNT(b)",
        "INSPECT #b RETURN " + ", ".join(["n"] * 60),
        "MATCH b: B RETURN b.id ORDER BY " + ", ".join(["b.n"] * 60),
        "BEGIN " + columns(60),
    ],
    ids=range(10),
)
def test_repeated_value_counts_each_time(server: Running, text: str) -> None:
    with Session(server.url) as session, pytest.raises(MewError, match=r"limit bytes: 1048576") as caught:
        session.run(text.replace("#b", f'#"{session.query("MATCH b: B RETURN b.id AS i")[0]["i"]}"'))
    assert caught.value.word == "statement_limit"


def test_call_above_its_bytes_ends_with_a_limit(server: Running) -> None:
    lines = post(server, ";".join([columns(20)] * 5))
    assert [line["kind"] for line in lines] == ["result", "result", "error"]
    assert (lines[-1]["code"], lines[-1]["line"]) == ("statement_limit", 1)
    assert "limit call_bytes: 1048576" in lines[-1]["message"]
    assert lines[1]["rows"] == [["x" * LONG] * 20]


def test_call_above_its_rows_ends_with_a_limit(server: Running) -> None:
    lines = post(server, ";".join(["MATCH b: B RETURN b.id"] * 60))
    assert [line["kind"] for line in lines] == ["result"] * 50 + ["error"]
    assert "limit call_rows: 50" in lines[-1]["message"]


def test_lines_without_rows_count_for_the_call(server: Running) -> None:
    """The call ends between two statements, also with keep_going."""
    lines = post(server, "TICK;" * 3000, keep_going=True)
    assert lines[-1]["code"] == "statement_limit"
    assert [line["kind"] for line in lines] == ["result"] * (len(lines) - 1) + ["error"]
    assert post(server, "TICK")[0]["kind"] == "result"


def test_row_that_builds_many_strings_is_refused(lite: Prompt) -> None:
    lite.ok("node B { n: String } SPAWN b: B { n = $n }", n="x" * (4 << 20))
    for expression in ("[{}]", "min({})"):
        built = expression.format(", ".join(['b.n ++ "y"'] * 30))
        lite.refused(f"MATCH b: B RETURN {built}", "statement_limit", "limit strings: 67108864")


def test_event_beyond_its_bytes_has_nulls(lite: Prompt) -> None:
    lite.ok("node B { n: String }")
    returned = ", ".join(f"b.n AS c{one}" for one in range(6))
    lite.ok(f"w = WATCH b: B RETURN {returned}")
    lite("SPAWN b: B { n = $n }", n="x" * (4 << 20))
    assert [value is None for value in lite.events[0]["match"].values()] == [False] * 4 + [True] * 2


def test_fetch_of_large_events_comes_in_parts(prompt: Prompt) -> None:
    prompt.ok("node B { n: String }")
    prompt.ok("w = WATCH b: B RETURN b.n")
    for _ in range(20):
        prompt.session.run("SPAWN b: B { n = $n }", {"n": "x" * (1 << 20)})
    counts = [len(prompt.session.fetch(1000)) for _ in range(3)]
    assert (sum(counts), max(counts) < 20) == (20, True)
    prompt.ok("c = WATCH b: B [mode: consume, buffer: 100] RETURN b")
    consumed = len(prompt.consumed)
    assert 8 <= consumed < 20
    assert consumed + sum(len(prompt.session.fetch(1000)) for _ in range(2)) == 20


def test_fetch_of_large_events_behind_small_ones_is_cut(prompt: Prompt) -> None:
    prompt.ok("node B { n: String } w = WATCH b: B [initial: none] RETURN b.n")
    for size in [1] * 16 + [1 << 20] * 20:
        prompt.session.run("SPAWN b: B { n = $n }", {"n": "x" * size})
    assert [len(prompt.session.fetch(1000)) for _ in range(3)] == [16 + 8, 12, 0]


def test_answer_without_memory_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    url = f"sqlite:///{tmp_path}/other.db?durability=normal"
    with Running(url, clock, answer_memory=1 << 20, peer_share=1.0) as small:
        with Session(small.url) as session:
            session.run("node B { n: String } SPAWN b: B { n = $n }", {"n": "x" * LONG})
        memory = small.server.memory
        memory.add(1 << 19, "another")
        lines = post(small, f"TICK; {columns(40)}")
        assert [line.get("code") for line in lines] == [None, "answers_full"]
        assert len(post(small, columns(10))[0]["rows"][0]) == 10
        memory.free(1 << 19, "another")
        assert len(post(small, columns(60))[0]["rows"][0]) == 60
        until(lambda: memory.used == 0)


def test_events_without_memory_are_not_lost(tmp_path: Path, clock: ManualClock) -> None:
    url = f"sqlite:///{tmp_path}/other.db?durability=normal"
    with Running(url, clock, answer_memory=1 << 20, peer_share=1.0) as small:
        memory = small.server.memory
        named: dict[str, Any] = {"session": "s", "params": {"n": "x" * 100_000}}
        post(small, "node B { n: String } w = WATCH b: B RETURN b.n", **named)
        post(small, "SPAWN b: B { n = $n }", **named, events=0)
        memory.add(1 << 20, "another")
        refused = httpx2.post(f"{small.url}/mew", json={"session": "s"}, timeout=30)
        assert (refused.status_code, refused.json()["code"]) == (503, "answers_full")
        memory.free(1 << 20, "another")
        assert [line["kind"] for line in post(small, "", session="s")] == ["event"]
        until(lambda: memory.used == 0)


def test_statement_that_has_run_is_answered(tmp_path: Path, clock: ManualClock) -> None:
    """Its events make the answer large. A refusal would make the client send the statement again."""
    url = f"sqlite:///{tmp_path}/other.db?durability=normal"
    with Running(url, clock, answer_memory=1 << 20, peer_share=1.0) as small:
        memory = small.server.memory
        named: dict[str, Any] = {"session": "s", "params": {"n": "x" * 100_000}}
        post(small, "node B { n: String } w = WATCH b: B RETURN b.n", **named)
        memory.add(1 << 20, "another")
        assert [line["kind"] for line in post(small, "SPAWN b: B { n = $n }", **named)] == ["result", "event"]
        memory.free(1 << 20, "another")
        until(lambda: memory.used == 0)


def test_answer_in_pieces_is_the_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "PIECE", 64)
    gathered = CollectedAnswer(StatementLimits(), lambda size: True)
    rows = [[1, None, ["ü" * 40, {"a": "b" * 100, "c": []}], 1.5, True]] * 20
    gathered.admit(rows)
    gathered.emit(Result(1, 1, "MATCH", Done(columns=list("abcde"), rows=rows)))
    gathered.emit(TextLine("text"))
    whole = gathered.whole("s")
    pieces = list(gathered.pieces("s"))
    assert len(pieces) > 20
    assert max(map(len, pieces)) < 1000
    assert b"".join(pieces) == whole
    assert msgspec.json.decode(whole)["lines"][0]["rows"] == rows


def test_call_of_many_large_answers_is_bounded(tmp_path: Path) -> None:
    """Reproduction: one call took 2.4 GB, blocked /livez for 7 s, and SIGTERM took 10 s."""
    with (
        ServerProcess(f"sqlite:///{tmp_path}/graph.db?durability=normal", "--grace", "1") as server,
        httpx2.Client(base_url=server.url, timeout=5) as http,
    ):
        spawn = {"text": "node B { n: String } SPAWN b: B { n = $n }", "params": {"n": "x" * (4 << 20)}}
        assert http.post("/mew", json=spawn).json()["fine"] is True
        with abandoned.post(server, ";".join([columns(60)] * 10)) as sock:
            for _ in range(50):
                assert len(sock.recv(1 << 20)) > 0
                assert http.get("/livez").status_code == 200
            assert abandoned.peak(server) < abandoned.MOST_MEMORY
            began = time.monotonic()
            server.stop()
            assert time.monotonic() - began < 10


def test_weight_counts_nested_values() -> None:
    assert weight([["abc", {"key": "value"}], 1, None, "ä"]) == 8 + 8 + 3 + 8 + 3 + 5 + 8 + 8 + 2
