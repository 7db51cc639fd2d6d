"""Content filters of AMPS: conditions over the JSON fields of a message, in SQL's three-valued logic.

A condition is true, false or unknown (None). A field that is missing or null makes a condition unknown. A filter takes
a message only if its condition is true.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from ackwise.core.regular_expressions import compiled

Truth = bool | None
Constant = str | int | float | bool
Condition = Callable[[object], Truth]
"""Judges a decoded JSON document."""
ValueTest = Callable[[object], Truth]
"""Judges one value of a field."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?")
_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_decode = msgspec.json.Decoder().decode
_NOT_JSON = object()


class FieldPath(tuple[str, ...]):
    """Path of a field: `/order/total`. In an array, a segment is the number of an element or a field of each."""

    __slots__ = ()

    def __str__(self) -> str:
        return "/" + "/".join(self)

    def values(self, document: object) -> list[object]:
        """The values at the path. An array stands for its elements. A null is no value."""
        values = [document]
        for segment in self:
            values = [nested for value in values for nested in _step(value, segment)]
        flat = (element for value in values for element in (value if isinstance(value, list) else (value,)))
        return [value for value in flat if value is not None]


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

    def takes(self, payload: bytes) -> bool:
        """Whether a message matches. A payload that is not JSON has no fields."""
        return self._condition(document(payload)) is True


def document(payload: bytes) -> object:
    """A payload as JSON. A document without fields if it is not JSON."""
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NOT_JSON


# logic


def negation(condition: Condition) -> Condition:
    def judge(document: object) -> Truth:
        truth = condition(document)
        return None if truth is None else not truth

    return judge


def all_of(conditions: Sequence[Condition]) -> Condition:
    """AND: false if one is false, else unknown if one is unknown."""

    def judge(document: object) -> Truth:
        truth: Truth = True
        for condition in conditions:
            part = condition(document)
            if part is False:
                return False
            truth = truth and part
        return truth

    return judge


def any_of(conditions: Sequence[Condition]) -> Condition:
    """OR: true if one is true, else unknown if one is unknown."""

    def judge(document: object) -> Truth:
        return _either(condition(document) for condition in conditions)

    return judge


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

    def judge(document: object) -> Truth:
        values = path.values(document)
        return _either(map(test, values)) if values else None

    return judge


def is_null(path: FieldPath) -> Condition:
    return lambda document: not path.values(document)


def comparison(symbol: str, literal: Constant) -> ValueTest:
    """`=`, `!=`, `<`, `>`, `<=` or `>=` with a literal."""
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
    above, below = comparison(">=", low), comparison("<=", high)
    return all_of([above, below])


def one_of(literals: Sequence[Constant]) -> ValueTest:
    return any_of([comparison("=", literal) for literal in literals])


def begins_with(texts: Sequence[str]) -> ValueTest:
    return _text_test(lambda value: value.startswith(tuple(texts)))


def ends_with(texts: Sequence[str]) -> ValueTest:
    return _text_test(lambda value: value.endswith(tuple(texts)))


def contains(texts: Sequence[str]) -> ValueTest:
    return _text_test(lambda value: any(text in value for text in texts))


def like(pattern: str) -> ValueTest:
    """Whether a regular expression matches a part of the text. A cache bounds the memory of compiled expressions."""
    return _text_test(lambda value: compiled(pattern).found_in(value))


def _text_test(test: Callable[[str], bool]) -> ValueTest:
    def judge(value: object) -> Truth:
        text = _text(value)
        return None if text is None else test(text)

    return judge


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
