"""Whether a value keeps the modifiers of its attribute."""

from __future__ import annotations

import re
from typing import Any

from ackwise.core.graph import faults
from ackwise.core.graph import syntax as s
from ackwise.core.graph.faults import NOWHERE, At
from ackwise.core.graph.ontology import Attribute
from ackwise.core.graph.regular import LONGEST_TEXT, regular
from ackwise.core.graph.values import fitting

_FORMATS = {
    "email": re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+"),
    "uuid": re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "url": re.compile(r"https?://\S+"),
    "date": re.compile(r"\d{4}-\d{2}-\d{2}"),
}


def accepted(attribute: Attribute, value: object, at: At = NOWHERE) -> Any:
    """The value as it is stored, or a refusal. Modifiers say nothing about null."""
    if value is None:
        if not attribute.nullable:
            raise faults.constraint(f"required attribute '{attribute.name}' must not be null", at)
        return None
    stored = fitting(value, attribute.scalar, attribute.name, at)
    for check in attribute.checks:
        wrong = broken(check, stored)
        if wrong:
            raise faults.constraint(f"attribute '{attribute.name}': {wrong}", at)
    return stored


def broken(check: s.Modifier, value: Any) -> str:
    """What is wrong with the value; empty when nothing is."""
    values: tuple[Any, ...] = check.values
    match check.name, values:
        case ">=", (bound,):
            return "" if value >= bound else f"{value!r} is less than {bound}"
        case "<=", (bound,):
            return "" if value <= bound else f"{value!r} is more than {bound}"
        case ">", (bound,):
            return "" if value > bound else f"{value!r} is not more than {bound}"
        case "<", (bound,):
            return "" if value < bound else f"{value!r} is not less than {bound}"
        case "..", (least, most):
            return "" if least <= value <= most else f"{value!r} is not within {least}..{most}"
        case "in", allowed:
            return "" if value in allowed else f"{value!r} is not one of the allowed values"
        case "length", (least, most):
            return "" if least <= len(value) <= most else f"its length {len(value)} is not within {least}..{most}"
        case "match", (str() as pattern,):
            looked_for = regular(pattern)
            if wrong := _too_long(value, looked_for.longest):
                return wrong
            return "" if looked_for.found_in(value) else f"{value!r} does not match {pattern!r}"
        case "format", (str() as word,):
            if wrong := _too_long(value, LONGEST_TEXT):
                return wrong
            return "" if _FORMATS[word].fullmatch(value) else f"{value!r} is not a {word}"
        case _:
            return ""


def _too_long(value: str, most: int) -> str:
    return f"its {len(value)} characters are more than the {most} that are looked through" if len(value) > most else ""
