"""Content filters: conditions over the JSON fields of a message, in the language of AMPS and SQL's three-valued logic.

A condition is true, false or unknown (None). A field that is missing or null makes a condition unknown. A filter takes
a message only if its condition is true.

Each evaluation has a budget of visits. A visit is one value that a path reads or that a test compares.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ackwise.core.regular_expressions import compiled

Truth = bool | None
Constant = str | int | float | bool

MOST_VISITS = 50_000
"""Visits of one evaluation, about 5 ms."""
MOST_PARTS = 50_000
"""Parts of a payload that a filter decodes: values, and pieces of 64 bytes. The decoder cannot be interrupted."""
PATTERN_VISITS = 10
"""Visits that a regular expression counts for each value."""
SURELY_FEW = 4096
"""Bytes of a payload that cannot have too many parts."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?")
_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_decode = msgspec.json.Decoder().decode
_NOT_JSON = object()
_UNKNOWN = object()
_TOO_LARGE = object()


class TooCostly(Exception):
    """A filter needs more visits for a message than its budget has."""


class Document:
    """Payload of a message as JSON, decoded once for all filters. Counts the visits of one evaluation at a time.

    A payload that is not JSON has no fields.
    """

    __slots__ = ("_most", "_payload", "_root", "visits")

    def __init__(self, payload: bytes) -> None:
        self._payload, self._root = payload, _UNKNOWN
        self._most, self.visits = MOST_VISITS, 0

    def begin(self, most: int) -> None:
        """Start an evaluation with its budget."""
        self._most, self.visits = most, 0

    def visit(self, count: int) -> None:
        """Count visits before they are made. Raises `TooCostly` above the budget."""
        self.visits += count
        if self.visits > self._most:
            raise TooCostly

    @property
    def root(self) -> object:
        if self._root is _UNKNOWN:
            self._root = _TOO_LARGE if _is_too_large(self._payload) else _decoded(self._payload)
        if self._root is _TOO_LARGE:
            raise TooCostly
        return self._root


def _is_too_large(payload: bytes) -> bool:
    """Whether a payload may have more than `MOST_PARTS` parts: each value follows a comma or an opening bracket."""
    pieces = len(payload) >> 6
    if len(payload) <= SURELY_FEW or pieces > MOST_PARTS:
        return pieces > MOST_PARTS
    return pieces + sum(map(payload.count, (b",", b"[", b"{"))) > MOST_PARTS


def _decoded(payload: bytes) -> object:
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NOT_JSON


Condition = Callable[[Document], Truth]
"""Judges a document."""
Judge = Callable[[object], Truth]
"""Judges one value of a field."""


class ValueTest(NamedTuple):
    """A test of one value. `visits` is the number of constants that it compares with the value."""

    judge: Judge
    visits: int = 1


class FieldPath(tuple[str, ...]):
    """Path of a field: `/order/total`. In an array, a segment is the number of an element or a field of each."""

    __slots__ = ()

    def __str__(self) -> str:
        return "/" + "/".join(self)

    def values(self, document: Document) -> list[object]:
        """The values at the path. An array stands for its elements. A null is no value."""
        values = [document.root]
        for segment in self:
            document.visit(_count(values))
            values = [nested for value in values for nested in _step(value, segment)]
        document.visit(_count(values))
        flat = (element for value in values for element in (value if isinstance(value, list) else (value,)))
        return [value for value in flat if value is not None]


def _count(values: Sequence[object]) -> int:
    """Number of values if an array stands for its elements."""
    return sum(len(value) if isinstance(value, list) else 1 for value in values)


def _step(value: object, segment: str) -> Iterable[object]:
    """Values below one value."""
    if isinstance(value, dict):
        return (value[segment],) if segment in value else ()
    if not isinstance(value, list):
        return ()
    if segment.isdecimal() and len(segment) < 10:
        return value[int(segment) : int(segment) + 1]
    return [element[segment] for element in value if isinstance(element, dict) and segment in element]


class ContentFilter:
    """A parsed filter. Two filters with the same text take the same messages."""

    __slots__ = ("_condition", "text")

    def __init__(self, text: str, condition: Condition) -> None:
        self.text, self._condition = text, condition

    def takes(self, document: Document, most: int = MOST_VISITS) -> Truth:
        """Whether a message matches. None if the filter needs more than `most` visits."""
        document.begin(most)
        try:
            return self._condition(document) is True
        except TooCostly:
            return None


# logic


def negation(condition: Condition) -> Condition:
    def judge(document: Document) -> Truth:
        truth = condition(document)
        return None if truth is None else not truth

    return judge


def all_of(conditions: Sequence[Condition]) -> Condition:
    """AND: false if one is false, else unknown if one is unknown."""
    return lambda document: _both(condition(document) for condition in conditions)


def any_of(conditions: Sequence[Condition]) -> Condition:
    """OR: true if one is true, else unknown if one is unknown."""
    return lambda document: _either(condition(document) for condition in conditions)


def _both(truths: Iterable[Truth]) -> Truth:
    truth: Truth = True
    for part in truths:
        if part is False:
            return False
        truth = truth and part
    return truth


def _either(truths: Iterable[Truth]) -> Truth:
    truth: Truth = False
    for part in truths:
        if part:
            return True
        truth = None if part is None else truth
    return truth


# conditions on a field


def field(path: FieldPath, test: ValueTest) -> Condition:
    """True if the test is true for one value of the field. Unknown if the field has no value."""

    def judge(document: Document) -> Truth:
        values = path.values(document)
        document.visit(test.visits * sum(map(_size, values)))
        return _either(map(test.judge, values)) if values else None

    return judge


def _size(value: object) -> int:
    """Visits of one comparison: 1, and more for a long text."""
    return 1 + (len(value) >> 7) if isinstance(value, str) else 1


def is_null(path: FieldPath) -> Condition:
    return lambda document: not path.values(document)


def comparison(symbol: str, literal: Constant) -> ValueTest:
    """`=`, `!=`, `<`, `>`, `<=` or `>=` with a literal."""
    return ValueTest(_comparison(symbol, literal))


def _comparison(symbol: str, literal: Constant) -> Judge:
    if symbol == "=":
        return lambda value: _equals(value, literal)
    if symbol == "!=":
        return lambda value: None if (equal := _equals(value, literal)) is None else not equal
    order = _ORDERS[symbol]

    def test(value: object) -> Truth:
        pair = _comparable(value, literal)
        return None if pair is None or isinstance(literal, bool) else bool(order(*pair))

    return test


def between(low: Constant, high: Constant) -> ValueTest:
    above, below = _comparison(">=", low), _comparison("<=", high)
    return ValueTest(lambda value: _both((above(value), below(value))), 2)


def one_of(literals: Sequence[Constant]) -> ValueTest:
    return ValueTest(lambda value: _either(_equals(value, literal) for literal in literals), len(literals))


def begins_with(texts: Sequence[str]) -> ValueTest:
    return _text_test(lambda value: value.startswith(tuple(texts)), len(texts))


def ends_with(texts: Sequence[str]) -> ValueTest:
    return _text_test(lambda value: value.endswith(tuple(texts)), len(texts))


def contains(texts: Sequence[str]) -> ValueTest:
    return _text_test(lambda value: any(text in value for text in texts), len(texts))


def like(pattern: str) -> ValueTest:
    """Whether a regular expression matches a part of the text. A cache bounds the memory of compiled expressions."""
    return _text_test(lambda value: compiled(pattern).found_in(value), PATTERN_VISITS)


def _text_test(test: Callable[[str], bool], visits: int) -> ValueTest:
    def judge(value: object) -> Truth:
        text = _text(value)
        return None if text is None else test(text)

    return ValueTest(judge, visits)


def _text(value: object) -> str | None:
    """A value as text. None for an object or an array."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int, float)) else None


def _equals(value: object, literal: Constant) -> Truth:
    if not isinstance(value, (str, int, float)):
        return None
    pair = _comparable(value, literal)
    return pair is not None and pair[0] == pair[1]


def _comparable(value: object, literal: Constant) -> tuple[object, object] | None:
    """Both values as numbers, or both as texts. A text that reads as a number compares with numbers.

    None for values of different types.
    """
    if isinstance(value, bool) or isinstance(literal, bool):
        return (value, literal) if type(value) is type(literal) else None
    if isinstance(value, str) == isinstance(literal, str):
        return (value, literal) if isinstance(value, (str, int, float)) else None
    left, right = _number(value), _number(literal)
    return None if left is None or right is None else (left, right)


def _number(value: object) -> int | float | None:
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            return None
        return float(value) if not value.lstrip("+-").isdecimal() else int(value)
    return value if isinstance(value, (int, float)) else None
