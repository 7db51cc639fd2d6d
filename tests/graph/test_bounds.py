"""Bounds of texts and parameters, counted before anything is parsed."""

from __future__ import annotations

import time
from bisect import bisect_left

import pytest

from ackwise.graph.errors import StatementLimit
from ackwise.graph.language import parse, parser, text_limits
from ackwise.protocols.mew.output_records import Line
from tests.mew.prompt import Prompt

SUM = "MATCH a: A RETURN " + "1+" * 30_000 + "1"
"""60 KB, as in the report of this defect."""


def exceeded(text: str) -> tuple[str, float] | None:
    error = parse(text).error
    if error is None:
        return None
    assert isinstance(error, StatementLimit)
    assert str(error.details["value"]) in error.message
    return error.details["limit"], error.details["value"]


def test_text_at_its_bounds_parses() -> None:
    assert exceeded("TICK;" * (text_limits.MOST_TOKENS // 2)) is None
    assert exceeded("--" + "x" * (text_limits.MOST_BYTES - 2)) is None
    half = text_limits.MOST_NESTING // 2
    assert exceeded("MATCH a: A WHERE " + "(" * half + "not " * half + "true" + ")" * half + " RETURN a") is None


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("TICK;" * (text_limits.MOST_TOKENS // 2) + "TICK", "tokens"),
        ("--" + "x" * text_limits.MOST_BYTES, "text"),
        ("--" + "ä" * (text_limits.MOST_BYTES // 2), "text"),
        ("MATCH a: A WHERE " + "(" * 101 + "true" + ")" * 101 + " RETURN a", "nesting"),
        ("MATCH a: A WHERE " + "not " * 101 + "true RETURN a", "nesting"),
        ("MATCH a: A WHERE a.n = " + "- " * 101 + "1 RETURN a", "nesting"),
        ("MATCH a: A WHERE a.n IN " + "[" * 101 + "]" * 101 + " RETURN a", "nesting"),
        ("MATCH a: A WHERE " + "not not (" * 40 + "true" + ")" * 40 + " RETURN a", "nesting"),
        (SUM, "tokens"),
    ],
)
def test_text_above_a_bound_is_a_statement_limit(text: str, limit: str) -> None:
    found = exceeded(text)
    assert found is not None
    assert found[0] == limit


@pytest.mark.parametrize(
    "text",
    [
        SUM,
        "/* " * 80_000,
        "rule a " + "/* " * 80_000,
        '"\\' * 100_000,
        "((" * 100_000,
        "rule r x;\n" * 2_500,
        "SPAWN a: A {" + ",".join(f"x{n}=1" for n in range(2_400)) + "}",
        "MATCH a: A RETURN " + "1+" * 4_990 + "1",
        "MATCH a: A WHERE " + "true or " * 4_990 + "true RETURN a",
        "MATCH a: A RETURN a" + ".b" * 4_990,
    ],
    ids=range(10),
)
def test_hostile_text_parses_in_linear_time(text: str) -> None:
    started = time.thread_time()
    parse(text)
    assert time.thread_time() - started < 3.0


FLAT = 1_500
"""Operands of a chain. More than Python's recursion limit, within the bound of tokens."""


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (" or ".join(["a.n = 5"] * FLAT) + " or a.n = 2", True),
        (" and ".join(["a.n = 2"] * FLAT), True),
        ("not (" + " or ".join(["a.n = 5"] * FLAT) + ")", True),
        (" + ".join(["a.n"] * FLAT), 2 * FLAT),
        (" - ".join(["a.n"] * FLAT), 4 - 2 * FLAT),
        (" + ".join(["a.n - 1"] * FLAT), 2 * FLAT - FLAT),
        (" * ".join(["1"] * FLAT), 1),
        (" ++ ".join(['"x"'] * FLAT), "x" * FLAT),
        (" ?? ".join(["null"] * FLAT) + " ?? a.n", 2),
        (" + ".join(["COUNT(a)"] * FLAT), FLAT),
        (" + ".join(["2 * (1 + a.n + 1)"] * 500), 4_000),
    ],
    ids=range(11),
)
def test_flat_chain_is_not_nesting(lite: Prompt, expression: str, value: object) -> None:
    lite.ok("node A { n: Int = 2 } SPAWN x: A")
    assert lite.ok(f"MATCH a: A RETURN {expression} AS v")["rows"] == [[value]]


def test_flat_chain_in_a_condition_selects(prompt: Prompt) -> None:
    prompt.ok("node A { n: Int = 2, m: Int = 1 } SPAWN x: A SPAWN y: A { n = 7 }")
    either = " or ".join(["a.n = 5"] * 700 + ["a.n = $n"])
    both = " and ".join(["a.m = 1"] * 700 + [f"({either})"])
    assert prompt.ok(f"MATCH a: A WHERE {both} RETURN a.n", n=7)["rows"] == [[7]]
    assert prompt.ok(f"MATCH a: A WHERE exists(b: A where {either}) RETURN a.n", n=7)["rows"] == [[7]]
    prompt.ok(f"w = WATCH a: A WHERE {both} [mode: consume] RETURN a.n", n=7)
    assert [event["match"] for event in prompt.consumed] == [{"a.n": 7}]
    prompt.ok("SPAWN z: A { n = 7 }, SPAWN o: A { n = 8 }")
    assert [event["match"] for event in prompt.consumed] == [{"a.n": 7}]


DEEP = "MATCH a: A WHERE a.n IS NULL or {} RETURN a"


@pytest.mark.parametrize(
    "condition",
    ["(true and 1 + 2 * " * 50 + "1" + ")" * 50, "a" + ".b" * 200 + " = 1", "a" + ".b" * 4_000 + " = 1"],
    ids=["mixed operators", "attributes", "very many attributes"],
)
def test_deep_expression_is_a_limit_of_its_own(condition: str) -> None:
    assert exceeded(DEEP.format(condition)) == ("depth", parser.DEEPEST)


@pytest.mark.parametrize(
    "text", ["MATCH a: A WHERE {} RETURN a.n", "w = WATCH a: A WHERE {} [mode: consume] RETURN a.n"]
)
@pytest.mark.parametrize(
    ("level", "inmost"),
    [
        ("(false or false or true and true and {})", "true"),
        ("(1 = 0 or 0 = min(0, 1 + 1 + 1 * 2 * 3) and {})", "true"),
        ("coalesce(null, null ?? null ?? {})", "true"),
        ("(0 + 0 + 1 * 1 * {})", "1 = 1"),
    ],
    ids=["or and", "calls", "coalesce", "sums"],
)
def test_expression_at_the_depth_bound_runs(prompt: Prompt, text: str, level: str, inmost: str) -> None:
    """Chains and calls inside each other, as deep as the bounds allow, need no more stack than Python has."""
    prompt.ok("node A { n: Int = 2 } SPAWN x: A")
    value, _, end = inmost.partition(" ")

    def nested(levels: int) -> str:
        before, after = level.split("{}")
        return text.format(f"{before * levels}{value}{after * levels} {end}")

    levels = bisect_left(range(text_limits.MOST_NESTING), True, key=lambda count: exceeded(nested(count)) is not None)
    lines = prompt(nested(levels - 1))
    assert levels > 30
    assert [line["kind"] for line in lines if line["kind"] == "error"] == []
    assert [event["match"] for event in prompt.consumed] or lines[0]["rows"] == [[2]]


def test_nested_exists_at_the_depth_bound_runs(prompt: Prompt) -> None:
    prompt.ok("node A { n: Int = 2 } SPAWN x: A")
    half = text_limits.MOST_NESTING // 2
    nested = "(a.n = 2 and a.n > 1 and exists(a: A where " * (half - 1) + "true" + "))" * (half - 1)
    assert prompt.ok(f"MATCH a: A WHERE {nested} RETURN a.n")["rows"] == [[2]]


def test_portions_of_a_long_file_are_within_the_bounds() -> None:
    text = 'SPAWN a: A { s = "; {" } -- a; b\n; /* ; */\n' * 4_000
    found = text_limits.portions(text)
    assert "".join(found) == text
    assert len(found) > 3
    assert [text_limits.exceeded(portion) for portion in found] == [None] * len(found)
    assert sum(len(parse(portion).statements) for portion in found) == 4_000
    assert text_limits.portions("TICK; TICK") == ["TICK; TICK"]


def test_number_with_many_digits_is_a_parse_error() -> None:
    error = parse("TICK " + "9" * 5000).error
    assert error is not None
    assert error.word == "parse_error"


def test_params_above_their_bound_are_a_limit(lite: Prompt) -> None:
    lite.ok("node A { n: Int = 0 }")
    text = "MATCH a: A WHERE a.n IN $list RETURN a"
    assert lite.ok(text, list=[1] * 1000)["rows"] == []
    line = lite.refused(text, "statement_limit", "100,000 values", list=[[1] * 50_000] * 2)
    assert line["name"] == "STATEMENT_LIMIT"


def test_many_parse_errors_end_the_text(lite: Prompt) -> None:
    lines: list[Line] = []
    assert lite.session.stream("x;" * 1000, lines.append, keep_going=True) is False
    assert len(lines) == 100
