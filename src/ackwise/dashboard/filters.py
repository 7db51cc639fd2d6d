"""Filters of lists: reads them from a query string, with relative times such as `15m`."""

from __future__ import annotations

import base64
import re
from typing import TypeVar

import msgspec

from ackwise.core import validation
from ackwise.core.errors import BadInput
from ackwise.core.messages import QUEUE_MODE
from ackwise.dashboard.request import PageRequest
from ackwise.wire import timestamps

DEFAULT_GROUP = "(default)"
"""Shown name of the group that has no name."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_RELATIVE = re.compile(r"(\d{1,6})\s*([smhdw])", re.ASCII)
_LONGEST_TIME = 64
_LONGEST_PLACE = 8192
P = TypeVar("P")


def group_name(name: str) -> str:
    """The name of a group as people read it."""
    return DEFAULT_GROUP if name == QUEUE_MODE else name


def text(page: PageRequest, field: str) -> str | None:
    """A filter, or None if it is absent or empty."""
    return page.query.get(field) or None


def group(page: PageRequest, field: str = "group") -> str | None:
    """The stored name of the group that a filter names."""
    name = text(page, field)
    return QUEUE_MODE if name == DEFAULT_GROUP else name


def instant(value: str | None, field: str, now: int) -> int | None:
    """An instant of the wall clock: an ISO time, or a distance into the past such as `15m`, `2h` or `7d`."""
    if not value:
        return None
    if len(value) > _LONGEST_TIME:
        raise BadInput(f"{field} is longer than {_LONGEST_TIME} characters")
    if (match := _RELATIVE.fullmatch(value.strip())) is not None:
        return max(0, now - int(match[1]) * _UNITS[match[2]] * validation.MICROS)
    try:
        return timestamps.parse(value.strip(), field)
    except BadInput:
        raise BadInput(
            f"{field} {value!r:.70} is not a time; write 15m, 2h or 7d for the past, or 2030-01-31T12:00:00Z"
        ) from None


def number(value: str | None, field: str, most: int = validation.MAX_PRIORITY, least: int = 0) -> int | None:
    """A whole number, or None if it is absent."""
    if not value:
        return None
    if not re.fullmatch(r"-?\d{1,18}", value.strip(), re.ASCII):
        raise BadInput(f"{field} must be a whole number, not {value!r:.40}")
    return validation.count(int(value), field, least=least, most=most)


def place_text(place: object) -> str | None:
    """The place of a list's next page as a keyword of the query string. None at the end of the list."""
    return None if place is None else base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def place(page: PageRequest, kind: type[P], field: str = "after") -> P | None:
    """The place that `place_text` wrote."""
    given = page.query.get(field)
    if not given:
        return None
    if len(given) > _LONGEST_PLACE:
        raise BadInput(f"{field} is not a place of this list")
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)), type=kind)
    except (msgspec.MsgspecError, ValueError):
        raise BadInput(f"{field} is not a place of this list") from None
