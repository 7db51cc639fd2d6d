"""What a watch is told, added up, is always what its query would find: a commit looks only at what it changed."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.mew.prompt import Object, Prompt

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
    "e(x, #q0) AS l WHERE l.w > 1 RETURN x.n, l.w",
    "x: P, e(x, #q0) RETURN x.tag",
    "x: P, e(x, y), e(z, y), z: P WHERE x.n < z.n RETURN x.n, z.n",
    "twin(a, b) RETURN a.m, b.m",
    "x: P WHERE not exists(e(x, q)) RETURN x.n",
    "x: Q WHERE exists(p: P, e(p, x) WHERE p.n > 2) RETURN x.m",
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


class Follower:
    """What one watch was told, added up."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()

    def hear(self, event: Object) -> None:
        match event["type"]:
            case "initial":
                self.rows.update(map(repr, event["matches"]))
            case "added":
                self.rows[repr(event["match"])] += 1
            case "removed":
                self.take(event["match"])
            case "changed":
                self.take(event["prev"])
                self.rows[repr(event["match"])] += 1

    def take(self, match: Object) -> None:
        assert self.rows[repr(match)] > 0, "something was removed that was not there"
        self.rows[repr(match)] -= 1
        self.rows += Counter()


def found(prompt: Prompt, pattern: str) -> Counter[str]:
    result = prompt.session.run(f"MATCH {pattern}")[0]
    whole = len(result.done.columns) == 1 and result.done.columns[0] == "x"
    return Counter(repr(row["x"] if whole else row) for row in result.records)


@pytest.mark.parametrize("seed", range(2))
def test_events_add_up_to_what_is_there(lite: Prompt, seed: int) -> None:
    dice = random.Random(seed)
    lite.ok(GRAPH + "SPAWN q0: Q { m = 0 }")
    followers = [Follower() for _ in PATTERNS]
    for number, pattern in enumerate(PATTERNS):
        lite.ok(f"w{number} = WATCH {pattern}")
        followers[number].hear(lite.events[0])
    for _ in range(50):
        texts = [
            dice.choice(STATEMENTS).format(a=dice.randrange(6), b=dice.randrange(6), t=dice.choice("ab"))
            for _ in range(dice.choice([1, 1, 1, 3]))
        ]
        lite.ok(texts[0] if len(texts) == 1 else "BEGIN " + "; ".join(texts) + "; COMMIT")
        for event in lite.events:
            followers[int(event["watch"][2:])].hear(event)
        for pattern, follower in zip(PATTERNS, followers, strict=True):
            assert follower.rows == found(lite, pattern), (texts, pattern)
