"""Bounds of a text, counted in one pass before the parser sees it: bytes, tokens and nesting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ackwise.core.graph.faults import StatementLimit, statement_limit

MOST_BYTES = 256 << 10
MOST_TOKENS = 10_000
MOST_NESTING = 100
MOST_VALUES = 100_000
"""The most values in all parameters of a call, including values inside lists."""

# Every branch consumes what it matched, also an unfinished comment or string: the time is linear in the text.
_TOKEN = re.compile(
    r"""\s+ | --[^\n]* | /\*.*?(?:\*/|\Z)
    | (?P<open>[(\[{]) | (?P<close>[)\]}]) | (?P<prefix>not\b|-)
    | (?P<other>"(?:[^"\\\n]|\\.)*"? | \w+ | \?\? | \+\+ | [<>!]= | \.\. | -> | .)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def exceeded(text: str) -> StatementLimit | None:
    """The first limit that the text exceeds."""
    if len(text) > MOST_BYTES or (not text.isascii() and len(text.encode("utf-8", "replace")) > MOST_BYTES):
        return statement_limit("text", MOST_BYTES)
    if len(text) <= MOST_TOKENS and _levels(text) <= MOST_NESTING:
        return None  # most texts: a token has a character, and a level a bracket or a prefix
    tokens = depth = run = 0
    outer: list[int] = []
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind is None:
            continue
        tokens += 1
        if tokens > MOST_TOKENS:
            return statement_limit("tokens", MOST_TOKENS)
        if kind == "other":
            run = 0
        elif kind == "prefix":
            run += 1
        elif kind == "open":
            # `not (not (...` nests by its brackets and by its prefixes.
            outer.append(run + 1)
            depth += run + 1
            run = 0
        else:
            depth -= outer.pop() if outer else 0
            run = 0
        if depth + run > MOST_NESTING:
            return statement_limit("nesting", MOST_NESTING)
    return None


def _levels(text: str) -> int:
    """At least as many as the text can nest."""
    return sum(map(text.count, "([{-")) + text.lower().count("not")


def portions(text: str) -> list[str]:
    """A long text, cut behind semicolons between statements into portions within the bounds."""
    if len(text) <= MOST_TOKENS:
        return [text]
    portions: list[str] = []
    begin = cut = tokens = since = depth = 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind is None:
            continue
        depth += (kind == "open") - (kind == "close")
        tokens, since = tokens + 1, since + 1
        if (tokens > MOST_TOKENS or token.end() - begin > MOST_BYTES // 4) and cut > begin:
            portions.append(text[begin:cut])
            begin, tokens = cut, since
        if token[0] == ";" and depth <= 0:
            cut, since, depth = token.end(), 0, 0
    return [*portions, text[begin:]]


def check_params(params: Mapping[str, Any]) -> None:
    """Refuse parameters that hold too many values."""
    left = MOST_VALUES
    ahead: list[Iterable[Any]] = [params.values()]
    while ahead:
        for value in ahead.pop():
            left -= 1
            if left < 0:
                raise statement_limit("params", MOST_VALUES)
            if isinstance(value, list | tuple):
                ahead.append(value)
