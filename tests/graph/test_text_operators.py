"""STARTS WITH, ENDS WITH, CONTAINS, and the formats of attributes."""

from __future__ import annotations

import pytest

from ackwise.graph.patterns import PREFIX
from tests.mew.prompt import Prompt

LONG = "ab" * PREFIX
WORDS = ("apple pie", "apple", "Apple", "pineapple", "app", "apple\U0010ffff\U0010ffff", LONG, LONG + "c")


@pytest.fixture
def words(prompt: Prompt) -> Prompt:
    prompt.ok("node Word { text: String?, n: Int = 0 }")
    for word in (*WORDS, None):
        prompt.ok("SPAWN w: Word { text = $word }", word=word)
    return prompt


@pytest.mark.parametrize("part", ["apple", "app", "", "pie", "ab", LONG, LONG + "c", "nothing"])
def test_text_operators_match_as_python_does(words: Prompt, part: str) -> None:
    tests = {"STARTS WITH": str.startswith, "ends  with": str.endswith, "Contains": str.__contains__}
    for operator, test in tests.items():
        rows = words.rows(f"MATCH w: Word WHERE w.text {operator} $part RETURN w.text", part=part)
        assert [row[0] for row in rows] == [word for word in WORDS if test(word, part)], operator
        counted = words.rows(f"MATCH w: Word WHERE w.text {operator} $part RETURN COUNT(w)", part=part)
        assert counted == [[len(rows)]]


def test_text_operators_with_null_are_false(lite: Prompt) -> None:
    lite.ok("node Word { text: String? } SPAWN w: Word")
    assert lite.rows('MATCH w: Word WHERE not w.text CONTAINS "a" RETURN COUNT(w)') == [[1]]
    assert lite.rows("MATCH w: Word WHERE w.text STARTS WITH null RETURN COUNT(w)") == [[0]]


def test_text_operators_refuse_numbers(lite: Prompt) -> None:
    lite.ok('node Word { text: String = "a", n: Int = 1 } SPAWN w: Word')
    lite.refused("MATCH w: Word WHERE w.text ENDS WITH 1 RETURN w", "constraint", "ENDS WITH compares strings")
    lite.refused('MATCH w: Word WHERE w.n STARTS WITH "1" RETURN w', "constraint", "cannot be compared with String")


def test_words_of_operators_are_still_names(lite: Prompt) -> None:
    lite.ok('node Odd { starts: String = "s" contains: String = "c" ends: String = "e" }')
    lite.ok("SPAWN contains: Odd")
    assert lite.rows(
        'MATCH starts: Odd WHERE starts.contains CONTAINS ("c") and contains(starts.ends, "e") RETURN starts.contains'
    ) == [["c"]]


def test_watch_with_text_operator_sees_changes(words: Prompt) -> None:
    words.ok('v = WATCH w: Word WHERE w.text STARTS WITH "pine" and w.text ENDS WITH "e" RETURN w.text')
    words.ok('SPAWN x: Word { text = "pine tree" } SPAWN y: Word { text = "pine" }')
    assert [event["match"] for event in words.events] == [{"w.text": "pine tree"}, {"w.text": "pine"}]
    words.ok('SET #x.text = "pine trees"')
    assert [event["type"] for event in words.events] == ["removed"]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("slug", ["a", "my-page-2", "2024"], ["", "My-Page", "a--b", "-a", "a-", "a_b", "ä", "a\n"]),
        ("email", ["a@b.c"], ["a@b", "@b.c", "a b@c.d"]),
        ("url", ["https://a.b/c?d=1"], ["ftp://a.b", "a.b", "https://a b"]),
        ("uuid", ["0123abcd-0123-0123-0123-0123456789AB"], ["0123abcd", "{0123abcd-0123-0123-0123-0123456789ab}"]),
    ],
)
def test_format_accepts_and_refuses(lite: Prompt, name: str, good: list[str], bad: list[str]) -> None:
    lite.ok(f"node T {{ a: String [format: {name}] }}")
    for value in good:
        lite.ok("SPAWN t: T { a = $value }", value=value)
    for value in bad:
        lite.refused("SPAWN t: T { a = $value }", "constraint", f"is no {name}", value=value)
    assert lite.rows("MATCH t: T RETURN COUNT(t)") == [[len(good)]]


def test_unknown_format_is_refused_with_the_known_ones(lite: Prompt) -> None:
    lite.refused("node T { a: String [format: phone] }", "constraint", "no format 'phone'; use one of email, uuid")
