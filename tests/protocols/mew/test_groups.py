"""Statements outside a transaction: the mutations of one text commit together."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from ackwise.broker import Broker
from ackwise.clock import ManualClock
from ackwise.engine.statement_limits import StatementLimits
from ackwise.graph.commands import GROUP_BYTES, GROUP_ROWS, RunGraph
from ackwise.graph.engine import step_runs
from ackwise.mew import Session
from ackwise.protocols.mew import statement_group
from ackwise.protocols.mew.answer_stream import CollectedAnswer
from tests.mew.prompt import Prompt, raised
from tests.patience import PATIENCE
from tests.server.running import Running

SHOP = """
node Dock { name: String [unique] }
node Parcel { label: String, size: Int = 1 }
edge queued(parcel: Parcel, dock: Dock) [parcel -> 1..2]
SPAWN north: Dock { name = "north" }
"""
CONSUME = "w = WATCH p: Parcel, queued(p, #north) [mode: consume] RETURN p.label"


@pytest.fixture
def shop(prompt: Prompt) -> Prompt:
    prompt.ok(SHOP)
    return prompt


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[RunGraph]:
    """Commands that the sessions of this process send."""
    sent: list[RunGraph] = []
    send = Broker.send

    def noted(self: Broker, command: Any) -> Any:
        if isinstance(command, RunGraph):
            sent.append(command)
        return send(self, command)

    monkeypatch.setattr(Broker, "send", noted)
    return sent


def labels(shop: Prompt) -> list[str]:
    return sorted(row[0] for row in shop.rows("MATCH p: Parcel RETURN p.label"))


def kinds(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Kind of each line, with statement or code, and line number."""
    return [
        (line["kind"], line.get("statement") or line.get("code") or line.get("type"), line.get("line"))
        for line in lines
    ]


def test_spawn_then_link_meets_the_minimum(shop: Prompt) -> None:
    shop.ok(CONSUME)
    lines = shop('SPAWN a: Parcel { label = "A" }\nLINK queued(#a, #north)\nSPAWN d: Dock { name = "d" }')
    assert kinds(lines) == [
        ("result", "SPAWN", 1),
        ("result", "LINK", 2),
        ("result", "SPAWN", 3),
        ("event", "consumed", None),
    ]
    assert [event["match"] for event in shop.consumed] == [{"p.label": "A"}]
    assert shop.ok("ACK $delivery_id")["outcome"] == "acked"


def test_minimum_that_is_not_met_undoes_the_group(shop: Prompt) -> None:
    before = shop.session.names.copy()
    lines = shop('SPAWN d: Dock { name = "d" }\n\n  SPAWN a: Parcel { label = "A" }\nSET #d.name = "e"\n')
    assert kinds(lines) == [("error", "constraint", 3)]
    assert "needs at least 1 'queued' edge(s)" in lines[0]["message"]
    assert lines[0]["column"] == 9
    assert shop.rows("MATCH d: Dock RETURN d.name") == [["north"]]
    assert labels(shop) == []
    assert shop.session.names == before


@pytest.mark.parametrize(
    "boundary", ["v = WATCH d: Dock RETURN d", 'ACK "x"', 'NACK "x"', "BEGIN", "TICK", "COMMIT", "ACK $absent"]
)
def test_boundary_commits_what_is_before_it(shop: Prompt, boundary: str) -> None:
    lines = shop(f'SPAWN a: Parcel {{ label = "A" }}\n{boundary}\nLINK queued(#a, #north)')
    assert kinds(lines)[0] == ("error", "constraint", 1)
    assert labels(shop) == []
    lines = shop(f'SPAWN b: Parcel {{ label = "B" }}\nLINK queued(#b, #north)\n{boundary}\n')
    assert kinds(lines)[:2] == [("result", "SPAWN", 1), ("result", "LINK", 2)]
    shop("ROLLBACK")
    assert labels(shop) == ["B"]


def test_group_is_one_change_for_watches(shop: Prompt) -> None:
    shop.ok("v = WATCH d: Dock RETURN d.name i = WATCH d: Dock [visibility: immediate, initial: none] RETURN d.name")
    tick = shop.rows("MATCH t: _TickState RETURN t.global_tick")
    lines = shop('SPAWN d: Dock { name = "d" } SET #d.name = "e" MATCH d: Dock SET d.name = d.name ++ "!"')
    seen = [(line["watch"], line["type"], line["match"]["d.name"]) for line in lines if line["kind"] == "event"]
    assert sorted(event for event in seen if event[0] == "#v") == [("#v", "added", "e!"), ("#v", "changed", "north!")]
    assert [event[1:] for event in seen if event[0] == "#i" and event[2][0] in "de"] == [
        ("added", "d"),
        ("changed", "e"),
        ("changed", "e!"),
    ]
    assert shop.rows("MATCH t: _TickState RETURN t.global_tick") == [[tick[0][0] + 1]]


def test_statements_before_an_error_keep_their_effect(shop: Prompt) -> None:
    text = 'SPAWN a: Dock { name = "a" }\nSPAWN b: Dock { name = "a" }\nSPAWN c: Dock { name = "c" }'
    assert kinds(shop(text)) == [("result", "SPAWN", 1), ("error", "constraint", 2)]
    assert shop.rows("MATCH d: Dock RETURN d.name") == [["north"], ["a"]]
    lines: list[Any] = []
    assert not shop.session.stream(text.replace('"a"', '"e"'), lines.append, keep_going=True)
    assert kinds([line.as_object() for line in lines]) == [
        ("result", "SPAWN", 1),
        ("error", "constraint", 2),
        ("result", "SPAWN", 3),
    ]


def test_error_that_leaves_a_minimum_unmet_comes_first(shop: Prompt) -> None:
    text = 'SPAWN a: Parcel { label = "A" }\nLINK queued(#a, #nowhere)'
    assert kinds(shop(text)) == [("error", "constraint", 2), ("error", "constraint", 1)]
    assert "there is nothing with the id '#nowhere'" in raised(shop.session, text).message
    assert labels(shop) == []


def test_reads_see_the_statements_before_them(shop: Prompt) -> None:
    lines = shop("""SPAWN a: Parcel { label = "A" }
        MATCH p: Parcel RETURN p.label
        INSPECT #a RETURN label
        node Note { text: String }
        LINK queued(#a, #north)
        SPAWN n: Note { text = "n" }
        MATCH p: Parcel, queued(p, d) RETURN d.name""")
    assert [line["rows"] for line in lines if line["rows"]] == [[["A"]], [["A"]], [["north"]]]
    assert [line["line"] for line in lines] == [1, 2, 3, 4, 5, 6, 7]
    assert [line["n"] for line in lines] == list(range(lines[0]["n"], lines[0]["n"] + 7))


def test_unlink_that_breaks_a_minimum_names_its_line(shop: Prompt) -> None:
    shop.ok('SPAWN a: Parcel { label = "A" } LINK e: queued(#a, #north)')
    assert kinds(shop('SPAWN d: Dock { name = "d" }\nUNLINK #e')) == [("error", "constraint", 2)]
    shop.ok('UNLINK #e SPAWN d: Dock { name = "d" } LINK queued(#a, #d)')
    assert shop.rows("MATCH p: Parcel, queued(p, d) RETURN d.name") == [["d"]]


def test_minimum_of_a_transaction_is_checked_at_commit(shop: Prompt) -> None:
    shop.ok('BEGIN SPAWN a: Parcel { label = "A" }')
    error = shop.refused("\nCOMMIT", "constraint", "needs at least 1 'queued'")
    assert error["line"] == 2
    shop.ok('BEGIN SPAWN a: Parcel { label = "A" } LINK queued(#a, #north) COMMIT')
    assert labels(shop) == ["A"]


def many(parcels: int) -> str:
    spawns = "\n".join(f'SPAWN p{n}: Parcel {{ label = "{n}" }}' for n in range(parcels))
    return spawns + "\n" + "\n".join(f"LINK queued(#p{n}, #north)" for n in range(parcels))


def test_long_text_commits_in_parts_where_minimums_are_met(
    lite: Prompt, commands: list[RunGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statement_group, "FIRST_SIZE", 4)
    lite.ok(SHOP)
    commands.clear()
    lines = lite(many(5) + "".join(f'\nSPAWN d{n}: Dock {{ name = "{n}" }}' for n in range(6)))
    assert [line["line"] for line in lines] == list(range(1, 17))
    assert {line["kind"] for line in lines} == {"result"}
    # Four and eight statements leave a minimum unmet, sixteen do not.
    assert [(len(command.steps), command.whole) for command in commands] == [(4, False), (8, True), (16, True)]
    commands.clear()
    lite.ok("".join(f'\nSPAWN e{n}: Dock {{ name = "e{n}" }}' for n in range(9)))
    assert [len(command.steps) for command in commands] == [4, 4, 1]
    last = lite(many(5).replace("LINK queued(#p4, #north)", ""))
    assert kinds(last) == [("error", "constraint", 5)]


def test_group_of_large_values_commits_in_parts(
    lite: Prompt, commands: list[RunGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("FIRST_BYTES", 20_000), ("MOST_EACH", 40_000)):
        monkeypatch.setattr(statement_group, name, size)
    lite.ok(SHOP)
    commands.clear()
    large = "x" * 10_000
    lite.ok("".join(f'SPAWN d{n}: Dock {{ name = $s ++ "{n}" }} ' for n in range(5)), s=large)
    assert [len(command.steps) for command in commands] == [2, 2, 1]
    commands.clear()
    pairs = "".join(f"SPAWN p{n}: Parcel {{ label = $s }} " for n in range(3))
    lite.ok(pairs + "".join(f"LINK queued(#p{n}, #north) " for n in range(3)), s=large)
    assert [len(command.steps) for command in commands] == [2, 6]
    lite.refused(pairs + pairs.replace("p", "q"), "statement_limit", "limit transaction", s=large)


def test_group_that_takes_long_is_split(
    lite: Prompt, commands: list[RunGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    lite.ok(SHOP)
    monkeypatch.setattr(step_runs, "GROUP_SECONDS", 0.0)
    commands.clear()
    assert len(lite('SPAWN a: Dock { name = "a" } SPAWN b: Dock { name = "b" } SPAWN c: Dock { name = "c" }')) == 3
    assert [len(command.steps) for command in commands] == [3, 1, 2, 1, 1]
    commands.clear()
    lite.ok('SPAWN p: Parcel { label = "A" } LINK queued(#p, #north)')
    assert [(len(command.steps), command.whole) for command in commands] == [(2, False), (1, False), (2, True)]
    assert labels(lite) == ["A"]


def test_large_read_in_a_group_has_its_own_limits(
    lite: Prompt, commands: list[RunGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_runs, "GROUP_ROWS", 2)
    lite.ok(SHOP + 'SPAWN d1: Dock { name = "1" } SPAWN d2: Dock { name = "2" }')
    commands.clear()
    lines = lite('SPAWN d3: Dock { name = "3" } MATCH d: Dock RETURN d.name SPAWN d4: Dock { name = "4" }')
    assert [len(line["rows"]) for line in lines] == [0, 4, 0]
    assert [len(command.steps) for command in commands] == [3, 1, 1]
    lite.ok('SPAWN d5: Dock { name = "5" } MATCH d: Dock SET d.name = d.name ++ "!" RETURNING d.name')
    assert lite.rows('MATCH d: Dock WHERE d.name ENDS WITH "!" RETURN COUNT(d)') == [[6]]


def test_limits_hold_for_each_statement_of_a_group(graph_url: str, clock: ManualClock) -> None:
    with Session(graph_url, clock=clock, limits={"changes": 3, "rows": 4}) as session:
        session.run(SHOP)
        session.run(" ".join(f'SPAWN d{n}: Dock {{ name = "{n}" }}' for n in range(5)))
        error = raised(session, 'SPAWN x: Dock { name = "x" } MATCH d: Dock SET d.name = d.name SPAWN y: Dock')
        assert error.word == "statement_limit"
        assert session.query("INSPECT #x RETURN name") == [{"name": "x"}]


def test_group_without_room_for_its_rows_runs_without_reads(
    graph_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Running(graph_url, clock) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:

        def post(text: str) -> list[str]:
            lines = http.post("/mew", json={"text": text, "session": "s"}).json()["lines"]
            return [line.get("statement") or line["message"] for line in lines]

        assert post(SHOP) == ["NODE", "NODE", "EDGE", "SPAWN"]
        read = 'SPAWN a: Parcel { label = "A" } MATCH p: Parcel RETURN p LINK queued(#a, #north)'
        assert post(read) == ["SPAWN", "MATCH", "LINK"]
        monkeypatch.setattr(CollectedAnswer, "has_room", lambda _: False)
        assert post('SPAWN b: Parcel { label = "B" } LINK queued(#b, #north) INSPECT #b') == [
            "SPAWN",
            "LINK",
            "INSPECT",
        ]
        assert "needs at least 1" in post(read)[0]


def test_answer_has_room_for_a_group_below_its_limits() -> None:
    limits = StatementLimits(rows=GROUP_ROWS + 1, bytes=3 * GROUP_BYTES)
    answer = CollectedAnswer(limits, lambda size: size < 3 * GROUP_BYTES)
    assert answer.has_room()
    answer.admit([[1]])
    assert answer.has_room()
    answer.admit([[1]])
    assert not answer.has_room()
    assert not CollectedAnswer(limits, lambda _: False).has_room()
