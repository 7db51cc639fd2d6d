"""Bounds of texts and parameters, counted before anything is parsed."""

from __future__ import annotations

import time

import pytest

from ackwise.core.graph.faults import StatementLimit
from ackwise.dialects.mew.language import bounds, parse
from ackwise.dialects.mew.lines import Line
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
    assert exceeded("TICK;" * (bounds.MOST_TOKENS // 2)) is None
    assert exceeded("--" + "x" * (bounds.MOST_BYTES - 2)) is None
    half = bounds.MOST_NESTING // 2
    assert exceeded("MATCH a: A WHERE " + "(" * half + "not " * half + "true" + ")" * half + " RETURN a") is None


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("TICK;" * (bounds.MOST_TOKENS // 2) + "TICK", "tokens"),
        ("--" + "x" * bounds.MOST_BYTES, "text"),
        ("--" + "ä" * (bounds.MOST_BYTES // 2), "text"),
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
    ],
    ids=range(7),
)
def test_hostile_text_parses_in_linear_time(text: str) -> None:
    started = time.perf_counter()
    parse(text)
    assert time.perf_counter() - started < 3.0


def test_portions_of_a_long_file_are_within_the_bounds() -> None:
    text = 'SPAWN a: A { s = "; {" } -- a; b\n; /* ; */\n' * 4_000
    found = bounds.portions(text)
    assert "".join(found) == text
    assert len(found) > 3
    assert [bounds.exceeded(portion) for portion in found] == [None] * len(found)
    assert sum(len(parse(portion).statements) for portion in found) == 4_000
    assert bounds.portions("TICK; TICK") == ["TICK; TICK"]


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
