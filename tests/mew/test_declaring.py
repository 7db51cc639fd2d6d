"""Declarations stand for ever: what no value could ever meet is refused at once. Regular expressions cost little."""

from __future__ import annotations

import random
import re

import pytest

from ackwise.core.graph.faults import GraphError
from ackwise.core.graph.regular import LONGEST_TEXT, MOST_STATES, Regular
from ackwise.mew import Session
from ackwise.store.clock import ManualClock
from tests.mew.prompt import Prompt, raised


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ('t: String [match: "(("]', "a ')' is missing"),
        ('t: String [match: "a(?=b)"]', "only (?:...) is known"),
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
def test_an_attribute_that_no_value_fits_is_refused(lite: Prompt, attribute: str, message: str) -> None:
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
def test_a_number_beyond_every_float_is_refused_and_others_read_the_graph_as_before(
    session: Session, graph_url: str, clock: ManualClock, text: str
) -> None:
    session.run("node Job { f: Float } SPAWN j: Job { f = 1.5 }")
    assert raised(session, text).word == "parse_error"
    with Session(graph_url, clock=clock) as other:
        other.run("node R { t: Float [<= 1e300] = 2.0 } SPAWN r: R SPAWN k: Job { f = 2.5 }")
    assert session.query("MATCH j: Job RETURN j.f") == [{"j.f": 1.5}, {"j.f": 2.5}]


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan")])
def test_a_parameter_that_is_no_number_is_refused(lite: Prompt, number: float) -> None:
    lite.ok("node Job { f: Float }")
    lite.refused("WATCH j: Job WHERE j.f < $most RETURN j", "constraint", "'$most' is", most=number)
    lite.refused("WATCH j: Job WHERE j.f in $some RETURN j", "constraint", "'$some' is", some=[1.0, number])


def test_an_alias_that_no_value_fits_is_refused(lite: Prompt) -> None:
    lite.refused("type Lane = Int [9..1]", "constraint", "no value is left")
    lite.refused('type Code = String [match: "[z-a]"]', "constraint", "the wrong way round")
    lite.ok("type Lane = Int [1..9]")
    lite.refused("node R { lane: Lane [> 9] }", "constraint", "no value is left")
    lite.ok("node R { lane: Lane [> 8] = 9 } SPAWN r: R")


@pytest.mark.parametrize("cards", ["a -> 3..1", "a -> 0", "b -> 0..0", "a -> 0..1, a -> 1..2"])
def test_a_cardinality_that_cannot_be_met_is_refused(lite: Prompt, cards: str) -> None:
    lite.ok("node J { n: Int }")
    lite.refused(f"edge e(a: J, b: J) [{cards}]", "constraint", "'e'")
    lite.ok("edge e(a: J, b: J) [a -> 0..1, b -> 1..*]")


def test_a_text_that_is_matched_is_not_too_long(lite: Prompt) -> None:
    lite.ok('node R { t: String [match: "(a+)+b"], mail: String? [format: email] }')
    lite.refused("SPAWN r: R { t = $t }", "constraint", "does not match", t="a" * LONGEST_TEXT)
    lite.refused("SPAWN r: R { t = $t }", "constraint", "more than the 2000", t="b" * (LONGEST_TEXT + 1))
    long = "x@" + "." * LONGEST_TEXT
    lite.refused('SPAWN r: R { t = "ab", mail = $mail }', "constraint", "more than the 2000", mail=long)
    lite.ok('SPAWN r: R { t = "aaab", mail = "a@b.c" }')


UNUSABLE = r"(( a** a*+ (?=a) (?<!a)b (a)\1 [z-a] [ a{3,1} a) *a \p [a-\d] \xg"


@pytest.mark.parametrize("text", [*UNUSABLE.split(), "\\", f"x{{{MOST_STATES}}}", "(" * 30 + ")" * 30])
def test_an_expression_that_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(GraphError, match="is not a regular expression that can be used"):
        Regular(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("(){99999999}", 1),
        ("((){99999999}){99999999}", 1),
        ("(a{0}){99999999}", 1),
        ("(?:(?:|){99999999}()){99999999}", 1),
        ("a" + "()" * 10_000, 2),
        ("(?:" + "|" * 10_000 + "a){100}", 201),
    ],
)
def test_what_is_nothing_is_not_repeated(text: str, parts: int) -> None:
    expression = Regular(text)
    assert sum(map(len, expression._next)) < 2 * parts
    assert (len(expression._next), expression.found_in("b")) == (parts, "a" + "()" not in text)


def test_letters_of_a_set_are_not_tried_one_by_one() -> None:
    """Those that stand side by side are one range, and ranges are in order."""
    together, apart = "".join(map(chr, range(0x4E00, 0x5E00))), "".join(map(chr, range(0x4E00, 0x5E00, 2)))
    for letters in (together, apart):
        counting = [Counted(letter) for letter in (letters[0], letters[-1], letters[len(letters) // 2], "z", "\uffff")]
        (fits,) = [one for one in Regular(f"[{letters}]")._letters if one is not None]
        assert [letter in fits for letter in counting] == [True, True, True, False, False]
        assert all(letter.compared < 20 for letter in counting)
    assert [letter for letter in "abcdefg-" if Regular("[^b-ca-bfc-d-]").found_in(letter)] == ["e", "g"]


class Counted(str):
    """A letter that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: str) -> bool:
        self.compared += 1
        return super().__lt__(other)

    def __le__(self, other: str) -> bool:
        self.compared += 1
        return super().__le__(other)

    def __ge__(self, other: str) -> bool:
        self.compared += 1
        return super().__ge__(other)


def test_a_large_expression_is_looked_for_in_a_shorter_text(lite: Prompt) -> None:
    lite.ok('node R { t: String [match: "^(?:ab?){150}$"] }')
    lite.ok("SPAWN r: R { t = $t }", t="ab" * 100 + "a" * 50)
    longest = Regular("^(?:ab?){150}$").longest
    assert longest < LONGEST_TEXT
    lite.refused("SPAWN r: R { t = $t }", "constraint", f"more than the {longest}", t="a" * (longest + 1))


SETS = (".", r"\d", r"\w", r"\s", r"\W", "[a-b]", "[^a]", r"[\d_]", "[]a]", "[^]-a]", r"[a\-c]", r"\x61", r"\.")
SIGNS = ("*", "+", "?", "{2}", "{1,3}", "{,2}", "{2,}", "*?", "+?", "??")


def expression(dice: random.Random, deep: int = 0) -> str:
    match dice.randrange(11 if deep < 4 else 5):
        case 0 | 1 | 2:
            return re.escape(dice.choice("abc_ -.1"))
        case 3:
            return dice.choice(SETS)
        case 4:
            return dice.choice(["^", r"\b", r"\B", r"\A", r"\Z"])
        case 5 | 6 | 7:
            return expression(dice, deep + 1) + expression(dice, deep + 1)
        case 8:
            return f"({expression(dice, deep + 1)}|{expression(dice, deep + 1)})"
        case _:
            return f"(?:{expression(dice, deep + 1)}){dice.choice(SIGNS)}"


def test_expressions_find_what_others_find() -> None:
    """Python's own, which may take for ever, agree on texts that are short enough for them."""
    dice = random.Random(7)
    found = 0
    for _ in range(2000):
        text = expression(dice)
        ours, theirs = Regular(text), re.compile(text)
        for _ in range(3):
            letters = "".join(dice.choice("abc_ -.1\n") for _ in range(dice.randrange(1, 9)))
            assert ours.found_in(letters) == (theirs.search(letters) is not None), (text, letters)
            found += ours.found_in(letters)
    assert 1500 < found < 4500
