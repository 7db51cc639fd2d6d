"""What a watch is told, added up, is always what its query would find: a commit looks only at what it changed."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest

from ackwise.store.sqlite.session import SQLiteSession
from tests.graph.following import Follower, found
from tests.mew.prompt import Prompt

GRAPH = """
node P { n: Int, tag: String = "a" }
node Special: P {}
node Q { m: Int }
edge e(p: P, q: Q) { w: Int = 1 }
edge twin(a: Q, b: Q) [symmetric]
"""
PATTERNS = (
    "x: P RETURN x.n, x.tag",
    'x: P WHERE x.tag = "b" RETURN x.n',
    'x: P WHERE x.n > 3 or x.tag != "a" RETURN x',
    "x: Special RETURN x.n",
    "x: P, e(x, y) AS l, y: Q RETURN x.n, y.m, l.w",
    "x: P, e(x, y) WHERE x.n = y.m RETURN x.n",
    "x: P, e(x, y) AS l WHERE x.n = 3 and y.m = 2 RETURN x.tag, l.w",
    'x: P WHERE x.tag = "a" and not exists(e(x, q) WHERE q.m > 2) RETURN x.n',
    "e(x, #q0) AS l WHERE l.w > 1 RETURN x.n, l.w",
    "x: P, e(x, #q0) RETURN x.tag",
    "x: P, e(x, y), e(z, y), z: P WHERE x.n < z.n RETURN x.n, z.n",
    "twin(a, b) RETURN a.m, b.m",
    "x: P WHERE not exists(e(x, q)) RETURN x.n",
    "x: Q WHERE exists(p: P, e(p, x) WHERE p.n > 2) RETURN x.m",
    "x: Q WHERE x.m > 1 and not exists(e(p, x) AS l WHERE l.w = x.m) RETURN x.m",
    "x: P, e(x, y) AS l WHERE not exists(e(z, y), z: Special WHERE z.n > x.n) RETURN x.n, y.m, l.w",
    'x: P WHERE x.tag = "b" or exists(e(x, q), e(z, q) WHERE z.n != x.n) RETURN x.n, x.tag',
    "x: P WHERE exists(e(x, #q0)) and not exists(e(x, q) AS l, twin(q, b) WHERE l.w < b.m) RETURN x.n",
    "x: Q WHERE exists(twin(x, b) WHERE not exists(e(p, b) WHERE p.n > x.m)) RETURN x.m",
    "x: P WHERE exists(x: Special, e(x, q)) RETURN x.n",
    "x: P RETURN x.n, exists(e(x, q) AS l, e(x, q) AS k WHERE l.w < k.w) AS twice, exists(e(x, #q0)) AS linked",
    "e(x, y) AS l WHERE exists(twin(y, b), e(p, b) WHERE p.tag = x.tag) RETURN l.w, x.n",
)
STATEMENTS = (
    'SPAWN p: P {{ n = {a}, tag = "{t}" }}',
    "SPAWN s: Special {{ n = {a} }}",
    "SPAWN q: Q {{ m = {a} }}",
    "MATCH x: P WHERE x.n = {a} SET x.n = {b}",
    'MATCH x: P WHERE x.n = {a} SET x.tag = "{t}"',
    "MATCH y: Q WHERE y.m = {a} SET y.m = {b}",
    "MATCH x: P, y: Q WHERE x.n = {a} and y.m = {b} LINK e(x, y) {{ w = {b} }}",
    "MATCH x: P WHERE x.n = {a} LINK e(x, #q0) {{ w = {b} }}",
    "MATCH a: Q, b: Q WHERE a.m = {a} and b.m = {b} LINK twin(a, b)",
    "MATCH e(x, y) AS l WHERE l.w = {a} SET l.w = {b}",
    "MATCH e(x, y) AS l WHERE l.w = {a} UNLINK l",
    "MATCH x: P WHERE x.n = {a} KILL x",
    "MATCH y: Q WHERE y.m = {a} and y.id != #q0 KILL y",
)


def some(dice: random.Random) -> str:
    """A commit: one statement, or a few."""
    texts = [
        dice.choice(STATEMENTS).format(a=dice.randrange(6), b=dice.randrange(6), t=dice.choice("ab"))
        for _ in range(dice.choice([1, 1, 1, 3, 6]))
    ]
    return texts[0] if len(texts) == 1 else "BEGIN " + "; ".join(texts) + "; COMMIT"


SEEDS = range(200) if os.environ.get("ACKWISE_HYPOTHESIS") == "deep" else range(2)


@pytest.mark.parametrize("seed", SEEDS)
def test_events_add_up_to_what_is_there(lite: Prompt, seed: int) -> None:
    dice = random.Random(seed)
    lite.ok(GRAPH + "SPAWN q0: Q { m = 0 }")
    followers = [Follower() for _ in PATTERNS]
    for number, pattern in enumerate(PATTERNS):
        lite.ok(f"w{number} = WATCH {pattern}")
        followers[number].hear(lite.events[0])
    for _ in range(50):
        text = some(dice)
        lite.ok(text)
        for event in lite.events:
            followers[int(event["watch"][2:])].hear(event)
        for pattern, follower in zip(PATTERNS, followers, strict=True):
            assert follower.rows == found(lite.session, pattern), (text, pattern)


@pytest.mark.parametrize("seed", SEEDS)
def test_pool_has_what_matches(lite: Prompt, tmp_path: Path, seed: int) -> None:
    """With an ordering a pool is complete from the beginning; nothing is fetched from it."""
    dice = random.Random(seed)
    lite.ok(GRAPH + "SPAWN q0: Q { m = 0 }")
    patterns = [pattern.partition(" RETURN")[0] for pattern in PATTERNS if pattern.startswith("x: ")]
    for number, pattern in enumerate(patterns):
        lite.session.run(f"w{number} = WATCH {pattern} [mode: consume, ordering: attribute(x.id)] RETURN x")
    pools = "SELECT w.no FROM mew_pool AS p JOIN mew_watch AS w ON w.pool = p.id ORDER BY w.no"
    items = "SELECT e.id FROM mew_item AS i JOIN mew_entity AS e ON e.no = i.entity JOIN mew_watch AS w USING (pool)"
    connection = apsw.Connection(str(tmp_path / "lite.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        numbers = [no for (no,) in connection.execute(pools)]
        for _ in range(30):
            text = some(dice)
            lite.session.run(text)
            for no, pattern in zip(numbers, patterns, strict=True):
                there = sorted(one for (one,) in connection.execute(f"{items} WHERE w.no = ?", (no,)))
                wanted = sorted({row["x.id"] for row in lite.session.query(f"MATCH {pattern} RETURN x.id")})
                assert there == wanted, (text, pattern)
    finally:
        connection.close()


def test_commit_asks_only_for_what_it_changed(lite: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ten times as many nodes a commit reads no more rows, whatever is watched."""
    lite.ok(GRAPH + "SPAWN q0: Q { m = 0 } SPAWN p0: P { n = 0 } LINK e(#p0, #q0)")
    for pattern in PATTERNS:
        lite.session.run(f"WATCH {pattern.replace(' RETURN', ' [initial: none] RETURN')}")
    read = Counter[str]()
    look = SQLiteSession.look

    def counted(self: SQLiteSession, *given: Any) -> list[Any]:
        rows = look(self, *given)
        read["rows"] += len(rows)
        return rows

    monkeypatch.setattr(SQLiteSession, "look", counted)
    counts: list[list[int]] = []
    for size in (10, 100):
        many = ", ".join(f"SPAWN x: P {{ n = {n % 6} }}, SPAWN y: Q {{ m = {n % 6} }}" for n in range(size))
        lite.session.run(many)
        counts.append([])
        for text in (
            "SPAWN p: P { n = 3 } SPAWN q: Q { m = 2 }",
            "LINK l: e(#p, #q) LINK t: twin(#q, #q0)",
            "SET #p.n = 4 SET #q.m = 1 SET #l.w = 7",
            "UNLINK #l UNLINK #t KILL #p KILL #q",
        ):
            read.clear()
            lite.session.run(text)
            counts[-1].append(read["rows"])
    assert counts[0] == counts[1]
    assert sum(counts[0]) > 0


def test_commit_asks_only_watches_that_it_may_concern(lite: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many watches look at the same edges, each at those of a node of its own."""
    lite.ok(GRAPH + "SPAWN q0: Q { m = 0 } SPAWN p0: P { n = 3 }")
    asked: list[str] = []
    look = SQLiteSession.look

    def noted(self: SQLiteSession, text: str, *given: Any) -> list[Any]:
        asked.append(text)
        return look(self, text, *given)

    monkeypatch.setattr(SQLiteSession, "look", noted)
    counts = []
    for many in (2, 20):
        for n in range(many):
            lite.session.run(f"WATCH x: P, e(x, y) WHERE x.n = {n + many} RETURN y.m")
            lite.session.run(f"WATCH x: P WHERE x.n = {n + many} and not exists(e(x, y) WHERE y.m > 1) RETURN x.n")
        asked.clear()
        lite.session.run("LINK e(#p0, #q0)")
        counts.append(len(asked))
        lite.session.run("UNLINK e(#p0, #q0)")
    assert counts[0] == counts[1] > 0
