"""Parser of content filters: `/order/total > 5 AND /region IN ('eu', 'us')`. Bounds text, tokens and nesting."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NoReturn

from ackwise.core import filters
from ackwise.core.errors import BadInput
from ackwise.core.filters import Condition, Constant, ContentFilter, FieldPath, ValueTest
from ackwise.core.regular_expressions import compiled

LONGEST_TEXT = 4096
MOST_TOKENS = 500
MOST_DEPTH = 20
MOST_PATTERNS = 16
LONGEST_PATTERN = 200
LONGEST_NUMBER = 40
OPERATORS = ("||", "&&", *"|&+*/%!-^~")
"""Operators of other languages, which a refusal names as such."""

SUPPORTED = "= != < > <= >= AND OR NOT BETWEEN IN LIKE IS NULL BEGINS WITH ENDS WITH CONTAINS"
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<path>(?:/[^\s/=!<>()\[\],'"|&+*%]+)+)
    | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<malformed>[0-9][\w.]*)
    | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    | (?P<word>[A-Za-z_]\w*)
    | (?P<symbol>==|!=|<>|<=|>=|=|<|>|\(|\)|,)
    | (?P<end>\Z)
    | (?P<other>\|\||&&|.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_SPELLINGS = {"==": "=", "<>": "!="}
_COMPARISONS = ("=", "!=", "<", ">", "<=", ">=")
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_TEXT_TESTS: dict[str, Callable[[Sequence[str]], ValueTest]] = {
    "BEGINS": filters.begins_with,
    "ENDS": filters.ends_with,
    "CONTAINS": filters.contains,
}
_KEYWORDS = frozenset(word for word in f"{SUPPORTED} TRUE FALSE".split() if word.isalpha())

Token = tuple[str, str]
"""Kind and text: a path, number, text, word, symbol or end."""


def parse_filter(text: str) -> ContentFilter:
    """The filter that a text describes. Raises `BadInput` that names what is not supported."""
    if len(text) > LONGEST_TEXT:
        raise BadInput(f"the filter has {len(text)} characters; at most {LONGEST_TEXT} are allowed")
    parser = _Parser(_tokens(text))
    condition = parser.alternatives(0)
    parser.expect_end()
    return ContentFilter(text, condition)


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    at = 0
    while not tokens or tokens[-1][0] != "end":
        match = _TOKEN.match(text, at)
        assert match is not None  # `other` takes any character
        tokens.append(_token(match))
        if len(tokens) > MOST_TOKENS:
            raise BadInput(f"the filter has more than {MOST_TOKENS} words and symbols")
        at = match.end()
    return tokens


def _token(match: re.Match[str]) -> Token:
    assert match.lastgroup is not None
    kind, token = match.lastgroup, match[match.lastgroup]
    if kind == "malformed" or (kind == "number" and len(token) > LONGEST_NUMBER):
        raise _unsupported("number", token)
    if kind == "other":
        raise _unsupported("operator" if token in OPERATORS else "character", token)
    if kind == "word" and token.upper() in _KEYWORDS:
        return "keyword", token.upper()
    return kind, _SPELLINGS.get(token, token) if kind == "symbol" else token


def _unsupported(what: str, name: str) -> BadInput:
    return BadInput(f"the filter's {what} {name[:40]!r} is not supported; supported are {SUPPORTED}")


class _Parser:
    """Recursive descent: OR, then AND, then NOT, then parentheses and conditions."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._at, self._patterns = tokens, 0, 0

    # tokens

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += token[0] != "end"
        return token

    def _next_is(self, kind: str, *texts: str) -> bool:
        token_kind, text = self._tokens[self._at]
        return token_kind == kind and (not texts or text in texts)

    def _skip(self, kind: str, text: str) -> bool:
        """Skip a token if it is next."""
        present = self._next_is(kind, text)
        self._at += present
        return present

    def _expect(self, kind: str, text: str) -> None:
        if not self._skip(kind, text):
            self._refuse(f"{text} is missing")

    def expect_end(self) -> None:
        if not self._next_is("end"):
            self._refuse("AND or OR is missing")

    def _refuse(self, problem: str) -> NoReturn:
        """Refuse the filter at the next token. A name that is no keyword is refused with its name."""
        kind, text = self._tokens[self._at]
        if kind == "word":
            called = self._tokens[self._at + 1][1] == "("
            raise _unsupported("function" if called else "word", text)
        place = "at its end" if kind == "end" else f"before {text[:40]!r}"
        raise BadInput(f"the filter is not complete {place}: {problem}")

    # logic

    def alternatives(self, depth: int) -> Condition:
        parts = [self._conjunction(depth)]
        while self._skip("keyword", "OR"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else filters.any_of(parts)

    def _conjunction(self, depth: int) -> Condition:
        parts = [self._negated(depth)]
        while self._skip("keyword", "AND"):
            parts.append(self._negated(depth))
        return parts[0] if len(parts) == 1 else filters.all_of(parts)

    def _negated(self, depth: int) -> Condition:
        if depth > MOST_DEPTH:
            raise BadInput(f"the filter is nested more than {MOST_DEPTH} deep")
        if self._skip("keyword", "NOT"):
            return filters.negation(self._negated(depth + 1))
        if self._skip("symbol", "("):
            inner = self.alternatives(depth + 1)
            self._expect("symbol", ")")
            return inner
        return self._condition()

    # conditions

    def _condition(self) -> Condition:
        if self._next_is("path"):
            return self._field_condition(self._path())
        literal = self._literal("a path such as /order/total is missing")
        symbol = self._comparison()
        if not self._next_is("path"):
            self._refuse("a comparison needs a path on one side")
        return filters.field(self._path(), filters.comparison(_MIRRORED.get(symbol, symbol), literal))

    def _path(self) -> FieldPath:
        return FieldPath(self._take()[1].split("/")[1:])

    def _comparison(self) -> str:
        if not self._next_is("symbol", *_COMPARISONS):
            self._refuse("an operator is missing")
        return self._take()[1]

    def _field_condition(self, path: FieldPath) -> Condition:
        if self._next_is("symbol", *_COMPARISONS):
            symbol = self._take()[1]
            if self._next_is("path"):
                raise _unsupported("comparison with a second path", self._take()[1])
            return filters.field(path, filters.comparison(symbol, self._literal("a value is missing")))
        if self._skip("keyword", "IS"):
            null = filters.negation if self._skip("keyword", "NOT") else _as_it_is
            self._expect("keyword", "NULL")
            return null(filters.is_null(path))
        negated = self._skip("keyword", "NOT")
        condition = filters.field(path, self._test())
        return filters.negation(condition) if negated else condition

    def _test(self) -> ValueTest:
        if self._skip("keyword", "BETWEEN"):
            low = self._literal("a value is missing")
            self._expect("keyword", "AND")
            return filters.between(low, self._literal("a value is missing"))
        if self._skip("keyword", "IN"):
            if not self._next_is("symbol", "("):
                self._refuse("IN needs a list in parentheses")
            return filters.one_of(self._list())
        if self._skip("keyword", "LIKE"):
            return filters.like(self._pattern())
        for word, test in _TEXT_TESTS.items():
            if self._skip("keyword", word):
                if word != "CONTAINS":
                    self._expect("keyword", "WITH")
                return test([self._as_text(value) for value in self._list()])
        self._refuse("an operator is missing")

    def _pattern(self) -> str:
        (pattern,) = (self._as_text(value) for value in self._list(most=1))
        self._patterns += 1
        if self._patterns > MOST_PATTERNS:
            raise BadInput(f"the filter has more than {MOST_PATTERNS} regular expressions")
        if len(pattern) > LONGEST_PATTERN:
            raise BadInput(f"a regular expression of a filter has at most {LONGEST_PATTERN} characters")
        compiled(pattern)
        return pattern

    # values

    def _list(self, most: int = MOST_TOKENS) -> list[Constant]:
        """A value, or values in parentheses."""
        if not self._skip("symbol", "("):
            return [self._literal("a value is missing")]
        values = [self._literal("a value is missing")]
        while len(values) < most and self._skip("symbol", ","):
            values.append(self._literal("a value is missing"))
        self._expect("symbol", ")")
        return values

    def _literal(self, problem: str) -> Constant:
        kind, text = self._tokens[self._at]
        if kind == "number":
            self._take()
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        if kind == "text":
            self._take()
            return text[1:-1].replace(text[0] * 2, text[0])
        if self._next_is("keyword", "TRUE", "FALSE"):
            return self._take()[1] == "TRUE"
        self._refuse(problem)

    def _as_text(self, value: Constant) -> str:
        if isinstance(value, bool) or not isinstance(value, str):
            raise BadInput(f"LIKE, BEGINS WITH, ENDS WITH and CONTAINS need a text in quotes, not {value!r}"[:200])
        return value


def _as_it_is(condition: Condition) -> Condition:
    return condition
