"""The filter language: what matches, what is unknown, and what is refused with its name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.core.errors import BadInput
from ackwise.core.filter_parser import LONGEST_TEXT, MOST_DEPTH, MOST_PATTERNS, parse_filter
from ackwise.core.filters import MOST_PARTS, MOST_VISITS, Document

ORDER = {
    "order": {"total": 7, "note": None, "code": "A-17", "price": "12.50", "paid": True},
    "region": "eu",
    "tags": ["new", "vip"],
    "lines": [{"sku": "x", "count": 1}, {"sku": "y", "count": 5}],
    "größe": "L",
}

MATCHES = [
    "/order/total = 7",
    "/order/total == 7.0",
    "7 = /order/total",
    "5 < /order/total",
    "/order/total != 8",
    "/order/total <> 8",
    "/order/total > 5 AND /region IN ('eu','us')",
    "/order/total>=7 and /order/total<=7",
    "/order/total BETWEEN 7 AND 9",
    "/order/total NOT BETWEEN 8 AND 9",
    "/order/total > '6'",
    "/order/price > 12",
    "/order/price = 12.5",
    "/order/paid = TRUE",
    "/order/paid != FALSE",
    '/region = "eu"',
    "/region > 'da'",
    "/region != 5",
    "/region NOT IN ('us', 5)",
    "/region LIKE '^e.$'",
    "/region LIKE ('E|u')",
    "/order/code BEGINS WITH 'A-'",
    "/order/code BEGINS WITH ('B', 'A')",
    "/order/code NOT BEGINS WITH ('17')",
    "/order/code ENDS WITH ('17')",
    "/order/total ENDS WITH '7'",
    "/order/code CONTAINS '-1'",
    "/order/code LIKE '\\d{2}$'",
    "/order/note IS NULL",
    "/nothing IS NULL AND /nothing/at/all IS NULL",
    "/order IS NOT NULL",
    "NOT /order/total = 8",
    "NOT (/order/total = 8 OR /region = 'us')",
    "/nothing = 1 OR /region = 'eu'",
    "/tags = 'vip'",
    "/tags/0 = 'new'",
    "/lines/sku = 'y' AND /lines/count > 4",
    "/lines/1/count = 5",
    "/größe = 'L'",
    "/region = 'eu' OR /region = 'us' AND /order/total = 0",
]

DOES_NOT_MATCH = [
    "/order/total < 7",
    "/order/total BETWEEN 8 AND 9",
    "/nothing = 1",
    "/nothing != 1",
    "NOT /nothing = 1",
    "/nothing NOT IN (1)",
    "/nothing NOT LIKE 'x'",
    "/nothing IS NOT NULL",
    "/order/note = 'x'",
    "/order = 'x'",
    "NOT /order > 5",
    "/region > 5",
    "NOT /region > 5",
    "/order/paid > FALSE",
    "/order/paid = 1",
    "/region LIKE 'E'",
    "/region = 'EU'",
    "/tags/7 = 'new'",
    "(/region = 'eu' OR /region = 'us') AND /order/total = 0",
    "/nothing = 1 AND /region = 'eu'",
]


def takes(text: str, payload: bytes) -> bool | None:
    return parse_filter(text).takes(Document(payload))


@pytest.mark.parametrize("text", MATCHES)
def test_filter_takes_a_matching_message(text: str) -> None:
    assert takes(text, json.dumps(ORDER).encode())


@pytest.mark.parametrize("text", DOES_NOT_MATCH)
def test_filter_leaves_other_messages(text: str) -> None:
    assert not takes(text, json.dumps(ORDER).encode())


@pytest.mark.parametrize("payload", [b"", b"plain text", b"\xff", b"[" * 5000, b"7", b'"text"', b"null"])
def test_payload_without_fields_has_only_nulls(payload: bytes) -> None:
    assert takes("/a IS NULL", payload)
    assert not takes("/a = 1 OR NOT /a = 1", payload)


def test_quotes_are_doubled_inside_a_text() -> None:
    assert takes("/a = 'it''s'", b'{"a":"it\'s"}')
    assert takes('/a = "say ""x"""', rb'{"a":"say \"x\""}')


REFUSED = {
    "/a + 1 = 2": "'+'",
    "/a = 1 && /b = 2": "'&&'",
    "/a = 1 || /b = 2": "'||'",
    "!/a": "'!'",
    "/a % 2 = 0": "'%'",
    "/a[0] = 1": "'['",
    "INSTR(/a, 'x') != 0": "'INSTR'",
    "STREQUAL_I(/a, 'x')": "'STREQUAL_I'",
    "/a = CONCAT('x', 'y')": "'CONCAT'",
    "/a = /b": "'/b'",
    "/a MATCHES 'x'": "'MATCHES'",
    "/a REGEXP 'x'": "'REGEXP'",
    "price > 5": "'price'",
    "/a = 1 XOR /b = 2": "'XOR'",
    "": "path",
    "   ": "path",
    "/a": "operator",
    "1 = 1": "path",
    "/a =": "value",
    "/a IN 'x'": "IN",
    "/a IN ()": "value",
    "/a IN ('x'": ")",
    "/a BETWEEN 1": "AND",
    "/a BEGINS 'x'": "WITH",
    "/a LIKE 5": "quotes",
    "/a LIKE '('": "regular expression",
    "/a LIKE '(?=x)'": "look-around",
    "/a LIKE ('x', 'y')": ")",
    "/a IS 5": "NULL",
    "(/a = 1": ")",
    "/a = 1)": "AND or OR",
    "/a = 1 /b = 2": "AND or OR",
    "/a = 'open": "'",
    "/a = 1; DROP": "';'",
    "/": "'/'",
    "/a = 5x": "'5x'",
    "/a = $1": "'$'",
}


@pytest.mark.parametrize(("text", "named"), REFUSED.items())
def test_unsupported_filter_is_refused_with_its_name(text: str, named: str) -> None:
    with pytest.raises(BadInput) as refusal:
        parse_filter(text)
    assert named in refusal.value.message
    assert len(refusal.value.message) < 400


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("/a = '" + "x" * LONGEST_TEXT + "'", "characters"),
        ("/a IN (" + "1," * 400 + "1)", "more than"),
        ("(" * (MOST_DEPTH + 2) + "/a = 1", "nested"),
        ("NOT " * (MOST_DEPTH + 2) + "/a = 1", "nested"),
        (" OR ".join(["/a LIKE 'x'"] * (MOST_PATTERNS + 1)), "regular expressions"),
        ("/a LIKE '" + "x" * 300 + "'", "at most"),
        ("/a = " + "9" * 4000, "number"),
    ],
)
def test_filter_over_a_bound_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        parse_filter(text)


@given(st.text(alphabet="/ab1 '\"()<>=!,.ANDORNTISULK-+%[]", max_size=60))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        parsed = parse_filter(text)
    except BadInput:
        return
    assert parsed.takes(Document(b'{"a": 1, "b": ["x"]}')) in (True, False)


scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "b", "3", "-1"])


@given(scalars, st.integers(-5, 5))
def test_comparisons_agree_with_each_other(value: Any, number: int) -> None:
    """Trichotomy where an order is known, and NOT never makes an unknown condition true."""
    payload = json.dumps({"a": value}).encode()

    def matches(text: str) -> bool:
        return takes(text, payload) is True

    below, equal, above = (matches(f"/a {symbol} {number}") for symbol in ("<", "=", ">"))
    assert below + equal + above <= 1
    assert matches(f"/a <= {number}") == (below or equal)
    assert matches(f"/a BETWEEN {number} AND {number}") == equal == matches(f"/a IN ({number})")
    assert matches(f"NOT /a = {number}") == matches(f"/a != {number}")
    assert matches(f"/a = {number} OR /a != {number}") == (value is not None)


COSTLY = [
    " OR ".join(["/a = 1"] * 120),
    " OR ".join(["/a/b = 1"] * 120),
    "NOT (" + " OR ".join(["/a = 1"] * 120) + ")",
    f"/a IN ({','.join(map(str, range(3, 200)))})",
    " AND ".join(["/a NOT LIKE 'x.*y'"] * 16),
]


@pytest.mark.parametrize("text", COSTLY)
def test_costly_filter_stops_at_its_budget(text: str) -> None:
    """Conditions times elements of an array are bounded, whatever the filter would say."""
    document = Document(json.dumps({"a": [2] * 10_000}).encode())
    assert parse_filter(text).takes(document) is None
    assert takes(text, json.dumps({"a": [2] * 10}).encode()) is not None


def test_long_text_counts_as_many_visits() -> None:
    payload = json.dumps({"a": "x" * (1 << 20)}).encode()
    assert takes("/a CONTAINS 'xx'", payload) is True
    assert takes(" OR ".join(["/a CONTAINS 'y'"] * 120), payload) is None


def test_document_with_too_many_values_is_not_decoded() -> None:
    few, many = (b'{"n":1,"a":[' + b",".join([b"{}"] * count) + b"]}" for count in (MOST_PARTS // 3, MOST_PARTS))
    assert takes("/n = 1", few) is True
    assert takes("/n = 1", many) is None
    assert takes("/n = 1", b'{"n":1,"a":"' + b"x" * (65 * MOST_PARTS) + b'"}') is None


def test_next_evaluation_has_a_new_budget() -> None:
    document = Document(json.dumps({"a": [2] * (MOST_VISITS // 3)}).encode())
    assert [parse_filter("/a = 2").takes(document) for _ in range(3)] == [True] * 3
