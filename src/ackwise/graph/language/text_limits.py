"""Limits of a text (bytes, tokens, nesting) and of its parameters, checked in one pass before the parser runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ackwise.graph.errors import StatementLimit, statement_limit

MOST_BYTES = 256 << 10
MOST_TOKENS = 10_000
MOST_NESTING = 100
MOST_VALUES = 100_000
"""Values in all parameters of a call, including values inside lists."""

# Each branch consumes its match, also an unfinished comment or string, so the time is linear in the text.
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
        return None  # the usual case: a token has at least one character, and a level a bracket or a prefix
    nesting = _Nesting()
    tokens = 0
    for token in _TOKEN.finditer(text):
        if token.lastgroup is None:
            continue
        tokens += 1
        if tokens > MOST_TOKENS:
            return statement_limit("tokens", MOST_TOKENS)
        if nesting.after(token.lastgroup) > MOST_NESTING:
            return statement_limit("nesting", MOST_NESTING)
    return None


class _Nesting:
    """Counts how deeply brackets and prefixes nest. `not (not (x))` has four levels."""

    def __init__(self) -> None:
        self._depth = self._prefixes = 0
        self._levels: list[int] = []
        """For each open bracket, the levels that its closing bracket ends: its own, and the prefixes before it."""

    def after(self, kind: str) -> int:
        """The depth after a token of this kind."""
        if kind == "prefix":
            self._prefixes += 1
        elif kind == "open":
            self._levels.append(self._prefixes + 1)
            self._depth += self._prefixes + 1
            self._prefixes = 0
        else:
            if kind == "close" and self._levels:
                self._depth -= self._levels.pop()
            self._prefixes = 0
        return self._depth + self._prefixes


def _levels(text: str) -> int:
    """An upper bound of the text's nesting."""
    return sum(map(text.count, "([{-")) + text.lower().count("not")


def portions(text: str) -> list[str]:
    """Cut a long text into portions within the limits, at semicolons between statements."""
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
