"""Declarations stand for ever: what no value could ever meet is refused at once."""

from __future__ import annotations

import pytest

from ackwise.clock import ManualClock
from ackwise.graph.constraints import LONGEST_TEXT
from ackwise.mew import Session
from tests.mew.prompt import Prompt, raised


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ('t: String [match: "(("]', "missing )"),
        ('t: String [match: "a(?=b)"]', "look-around is not supported"),
        ('t: Int = "x"', "'t' is Int, not String"),
        ("t: Int [>= 5] = 3", "3 is less than 5"),
        ("t: Int = null", "must not be null"),
        ("t: Int = 1 / 0", "division by zero"),
        ("t: Int = nobody.n", "'nobody' is not known here"),
        ('t: Int [in: ["a"]]', "'t' is Int, not String"),
        ("t: String [in: [1, 2]]", "'t' is String, not Int"),
        ("t: Int [5..1]", "no value is left"),
        ("t: Int [> 4, < 5]", "no value is left"),
        ("t: Float [> 4.5, <= 4.5]", "no value is left"),
        ("t: Int [>= true]", "bound nothing"),
        ("t: String [length: 5..1]", "no value is left"),
        ("t: Int [in: [1, 2], >= 3]", "none of the values in its list"),
        ('t: String [in: ["ab"], length: 3..4]', "none of the values in its list"),
    ],
)
def test_attribute_that_no_value_fits_is_refused(lite: Prompt, attribute: str, message: str) -> None:
    lite.refused(f"node R {{ {attribute} }}", "constraint", message)
    lite.refused("node S { n: Int } edge r(a: S, b: S) { " + attribute + " }", "constraint", message)
    lite.ok("node R { t: Int [> 3, < 5] = 4, u: Float? [> 1, < 2], v: Int [>= 0.5, <= 1.5] = 1 } SPAWN r: R")


@pytest.mark.parametrize(
    "text",
    [
        "node R { t: Float [<= 1e400] }",
        "node R { t: Float? [in: [1.0, 1e400]] }",
        "node R { t: Float [1.0..1e999] = 2.0 }",
        "type R = Float [>= -1e999]",
        "WATCH j: Job WHERE j.f < 1e400 RETURN j",
    ],
)
def test_number_beyond_float_is_refused_and_graph_unchanged(
    session: Session, graph_url: str, clock: ManualClock, text: str
) -> None:
    session.run("node Job { f: Float } SPAWN j: Job { f = 1.5 }")
    assert raised(session, text).word == "parse_error"
    with Session(graph_url, clock=clock) as other:
        other.run("node R { t: Float [<= 1e300] = 2.0 } SPAWN r: R SPAWN k: Job { f = 2.5 }")
    assert session.query("MATCH j: Job RETURN j.f") == [{"j.f": 1.5}, {"j.f": 2.5}]


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan")])
def test_parameter_that_is_no_number_is_refused(lite: Prompt, number: float) -> None:
    lite.ok("node Job { f: Float }")
    lite.refused("WATCH j: Job WHERE j.f < $most RETURN j", "constraint", "'$most' is", most=number)
    lite.refused("WATCH j: Job WHERE j.f in $some RETURN j", "constraint", "'$some' is", some=[1.0, number])


def test_alias_that_no_value_fits_is_refused(lite: Prompt) -> None:
    lite.refused("type Lane = Int [9..1]", "constraint", "no value is left")
    lite.refused('type Code = String [match: "[z-a]"]', "constraint", "invalid character class range")
    lite.ok("type Lane = Int [1..9]")
    lite.refused("node R { lane: Lane [> 9] }", "constraint", "no value is left")
    lite.ok("node R { lane: Lane [> 8] = 9 } SPAWN r: R")


@pytest.mark.parametrize("cards", ["a -> 3..1", "a -> 0", "b -> 0..0", "a -> 0..1, a -> 1..2"])
def test_cardinality_that_cannot_be_met_is_refused(lite: Prompt, cards: str) -> None:
    lite.ok("node J { n: Int }")
    lite.refused(f"edge e(a: J, b: J) [{cards}]", "constraint", "'e'")
    lite.ok("edge e(a: J, b: J) [a -> 0..1, b -> 1..*]")


def test_text_that_is_matched_is_not_too_long(lite: Prompt) -> None:
    lite.ok('node R { t: String [match: "(a+)+b"], mail: String? [format: email] }')
    lite.refused("SPAWN r: R { t = $t }", "constraint", "does not match", t="a" * LONGEST_TEXT)
    lite.refused("SPAWN r: R { t = $t }", "constraint", "more than the 2000", t="b" * (LONGEST_TEXT + 1))
    long = "x@" + "." * LONGEST_TEXT
    lite.refused('SPAWN r: R { t = "ab", mail = $mail }', "constraint", "more than the 2000", mail=long)
    lite.ok('SPAWN r: R { t = "aaab", mail = "a@b.c" }')


def test_large_expression_is_looked_for_in_long_texts(lite: Prompt) -> None:
    lite.ok('node R { t: String [match: "^(?:ab?){150}$"], name: String? [match: "^[^!]{1,255}$"] }')
    lite.ok("SPAWN r: R { t = $t, name = $name }", t="ab" * 100 + "a" * 50, name="Größe 1")
    lite.refused("SPAWN r: R { t = $t }", "constraint", "does not match", t="a" * LONGEST_TEXT)
