"""Checks a value against the type and the modifiers of its attribute."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from ackwise.core.errors import BadInput
from ackwise.core.regular_expressions import RegularExpression, compiled
from ackwise.graph import ast as s
from ackwise.graph import errors
from ackwise.graph.errors import NOWHERE, At
from ackwise.graph.ontology import Attribute
from ackwise.graph.values import fitting

LONGEST_TEXT = 2000
"""Characters of a text that an expression or a format is compared with."""
_FORMATS = {
    "email": re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+"),
    "uuid": re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "url": re.compile(r"https?://\S+"),
    "slug": re.compile(r"[a-z0-9]+(-[a-z0-9]+)*"),
    "date": re.compile(r"\d{4}-\d{2}-\d{2}"),
}


_COMPARISONS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    ">=": (operator.ge, "less than"),
    "<=": (operator.le, "more than"),
    ">": (operator.gt, "not more than"),
    "<": (operator.lt, "not less than"),
}
"""The comparison that a modifier requires, and how a value that violates it compares with the bound."""


def accepted(attribute: Attribute, value: object, at: At = NOWHERE) -> Any:
    """The value as the attribute stores it. Raises `GraphError` if it does not fit. Modifiers do not apply to null."""
    if value is None:
        if not attribute.nullable:
            raise errors.constraint(f"required attribute '{attribute.name}' must not be null", at)
        return None
    stored = fitting(value, attribute.scalar, attribute.name, at)
    for check in attribute.checks:
        problem = violation(check, stored)
        if problem:
            raise errors.constraint(f"attribute '{attribute.name}': {problem}", at)
    return stored


def violation(check: s.Modifier, value: Any) -> str:
    """How a value violates a modifier. Empty if it does not."""
    values: tuple[Any, ...] = check.values
    match check.name, values:
        case ((">=" | "<=" | ">" | "<") as op, (bound,)):
            is_kept, relation = _COMPARISONS[op]
            return "" if is_kept(value, bound) else f"{value!r} is {relation} {bound}"
        case "..", (least, most):
            return "" if least <= value <= most else f"{value!r} is not within {least}..{most}"
        case "in", allowed:
            return "" if value in allowed else f"{value!r} is not one of the allowed values"
        case "length", (least, most):
            return "" if least <= len(value) <= most else f"its length {len(value)} is not within {least}..{most}"
        case "match", (str() as pattern,):
            return _mismatch(pattern, value)
        case "format", (str() as word,):
            return _too_long(value) or ("" if _FORMATS[word].fullmatch(value) else f"{value!r} is no {word}")
        case _:
            return ""


def _mismatch(pattern: str, value: str) -> str:
    if problem := _too_long(value):
        return problem
    return "" if expression(pattern).found_in(value) else f"{value!r} does not match {pattern!r}"


def expression(pattern: str, at: At = NOWHERE) -> RegularExpression:
    """The compiled expression of a `match` modifier."""
    try:
        return compiled(pattern)
    except BadInput as problem:
        raise errors.constraint(problem.message, at) from None


def _too_long(value: str) -> str:
    if len(value) <= LONGEST_TEXT:
        return ""
    return f"its {len(value)} characters are more than the {LONGEST_TEXT} that are looked through"
