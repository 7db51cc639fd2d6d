"""Regular expressions: Python's syntax on RE2, Unicode classes, and linear time."""

from __future__ import annotations

import random
import re
import sys
import time
import unicodedata

import pytest
import re2

from ackwise.core.errors import BadInput, MissingExtra
from ackwise.core.regular_expressions import RegularExpression, compiled, translated

FOUND = [
    (r"^[A-Z]+[0-9]+$", "ABC123", True),
    (r"^[A-Z]+[0-9]+$", "abc123", False),
    (r"^[A-Z]+[0-9]+$", "ABC123\n", False),
    (r"(a+)+b", "aaab", True),
    (r"(a+)+b", "aaaa", False),
    (r"^(?:ab?){3}$", "abaab", True),
    (r"^(?:ab?){3}$", "abab", False),
    (r"^a{,2}$", "aa", True),
    (r"^a{,2}$", "aaa", False),
    (r"^a{,2}$", "a{,2}", False),
    (r"^a{x}$", "a{x}", True),
    (r"a.c", "a\nc", False),
    (r"a.c", "a\U0001f600c", True),
    (r"\Ab\Z", "b", True),
    (r"\Ab\Z", "b\n", False),
    (r"\bab\b", "x ab y", True),
    (r"\bab\b", "xaby", False),
    (r"\Bb", "ab", True),
    (r"\d", "٣", True),
    (r"\d", "½", False),
    (r"\D", "٣", False),
    (r"^\w+$", "größe_Ⅳ½", True),
    (r"^\w+$", "a-b", False),
    (r"\W", "größe", False),
    (r"\W", "a\u0301", True),
    (r"^\s+$", "\t\x0b\x1c\x85\xa0\u2003\u2028\u3000 ", True),
    (r"\s", "\u200b", False),
    (r"\S", "\xa0\u2029", False),
    (r"^[\d_]+$", "1_٣", True),
    (r"^[\w.]+$", "é.ü", True),
    (r"^[^\w]+$", "!?\u0301", True),
    (r"^[^\W\d]+$", "größe_", True),
    (r"^[^\W\d]+$", "gr1", False),
    (r"^[\Wa]+$", "a-\u203f", True),
    (r"^[\Wa]+$", "_", False),
    (r"^[\D1]+$", "1a", True),
    (r"^[\D1]+$", "2", False),
    (r"^[\S ]+$", "a b", True),
    (r"^[\S ]+$", "a\tb", False),
    (r"^[\s-z]+$", "\t-z", True),
    (r"^[\s-z]+$", "a", False),
    (r"^[+\-\d]+$", "+1-2", True),
    (r"^[]a]+$", "a]", True),
    (r"^[^]-a]+$", "b[", True),
    (r"^[^]-a]+$", "^", False),
    (r"[^b-ca-bfc-d-]", "abcdf-", False),
    (r"[^b-ca-bfc-d-]", "e", True),
    (r"^[[:alpha:]]$", "h]", True),
    (r"^[[:alpha:]]$", "z", False),
    (r"[\b]", "\x08", True),
    (r"[\b]", "b", False),
    (r"\x41\u00e9\U0001f600", "Aé\U0001f600", True),
    (r"\x{1f600}", "\U0001f600", True),
    ("\\.\\-\\_\\\u2020", ".-_\u2020", True),
    (r"\n\t\r\f\v", "\n\t\r\f\v", True),
    (r"^\p{Greek}+$", "αβγ", True),
    (r"(?i)straße", "STRAßE", True),
    (r"^[\w -]{1,255}$", "Größe " * 40, True),
    (r"^[\w -]{1,255}$", "Größe " * 50, False),
    (r"(" * 30 + r"a" + r")" * 30, "a", True),
    (r"", "", True),
    (r"", "b", True),
    (r"()|a", "b", True),
    (r"(?:|){2}a", "b", False),
    (r"a", "\ud800", False),
    ("^\ud800$", "\ud800", True),
    (r"^.$", "\U0010ffff", True),
]
REFUSED = [
    *(("((", "missing )"), ("a)", "unexpected )"), ("[", "']' is missing"), ("[]", "']' is missing")),
    *((r"[\d", "']' is missing"), ("[z-a]", "invalid character class range"), (r"[a-\d]", "invalid")),
    *((r"[\x01-\s]", "invalid"), (r"[\x00-\S]", "invalid"), (r"[\A]", "invalid"), (r"[\Z]", "invalid")),
    *(("a**", "bad repetition"), ("a*+", "bad repetition"), ("*a", "no argument"), ("a{3,1}", "invalid repetition")),
    *(("a{1001}", "invalid repetition"), ("(?:(?:a{100}){100}){100}", "invalid repetition")),
    *(("(?=a)", "look-around"), ("a(?!b)", "look-around"), ("(?<=a)b", "look-around"), ("(?<!a)b", "look-around")),
    *((r"(a)\1", "back-references"), (r"\12", "back-references"), (r"(?P<x>a)(?P=x)", "invalid")),
    *((r"\p", "invalid"), (r"\xg", "invalid"), (r"\u12", "not known"), (r"\Qa\E", "not known"), (r"\C", "not known")),
    *(("\\", "ends with a backslash"), ("(?x)a", "invalid")),
]


@pytest.mark.parametrize(("text", "inside", "found"), FOUND)
def test_expression_finds_what_it_means(text: str, inside: str, found: bool) -> None:
    assert RegularExpression(text).found_in(inside) is found


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_unusable_expression_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadInput, match="is not a regular expression that can be used") as caught:
        RegularExpression(text)
    assert reason in caught.value.message


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
        ours, theirs = RegularExpression(text), re.compile(text)
        for _ in range(3):
            letters = "".join(dice.choice("abc_ -.1\n") for _ in range(dice.randrange(1, 9)))
            assert ours.found_in(letters) == (theirs.search(letters) is not None), (text, letters)
            found += ours.found_in(letters)
    assert 1500 < found < 4500


@pytest.mark.parametrize(
    "text", [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"[\D]", r"[\W]", r"[\S]", r"[^\D]", r"[^\W]", r"[^\S]"]
)
def test_class_has_the_letters_that_python_gives_it(text: str) -> None:
    """Compared for every assigned character: RE2 may know a later version of Unicode."""
    assigned = "".join(
        letter for letter in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(letter) not in ("Cn", "Cs")
    )
    assert re2.findall(f"(?:{translated(text)})+", assigned) == re.findall(f"(?:{text})+", assigned)


def test_time_grows_with_the_text_only() -> None:
    started = time.thread_time()
    for text in ("(a+)+b", "(a|aa)+$b", "(?:a?){300}a{300}b", "(.*)(.*)(.*)(.*)(.*)[^a]"):
        assert not RegularExpression(text).found_in("a" * 20_000)
    assert time.thread_time() - started < 5


def test_expression_is_compiled_once() -> None:
    assert compiled("once [a-z]+") is compiled("once [a-z]+")


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(MissingExtra, match=r"^a regular expression needs re2; .*pip install 'ackwise\[mew\]'$"):
        RegularExpression("a")


def test_expressions_of_several_filters_stay_compiled() -> None:
    texts = [f"filter {number} [a-z]+" for number in range(200)]
    first = list(map(compiled, texts))
    assert all(known is again for known, again in zip(first, map(compiled, texts), strict=True))
