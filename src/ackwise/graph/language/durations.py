"""Durations and timestamps as text: `30s`, `30.seconds`, `@2024-01-15T10:30:00Z`."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_UNITS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_COMPACT = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)", re.IGNORECASE)
_DOTTED = re.compile(r"([0-9]+)\.([a-z]+)", re.IGNORECASE)


def milliseconds(text: str) -> int:
    """The length of a duration literal. Raises ValueError if the text is none."""
    match = _DOTTED.fullmatch(text) or _COMPACT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration")
    unit = match[2].lower()
    scale = _UNITS.get(unit) or _UNITS[unit.removesuffix("s")]
    return round(float(match[1]) * scale) if "." in match[1] else int(match[1]) * scale


def instant(text: str) -> int:
    """Milliseconds since 1970 of a timestamp literal, without its `@`. A time without a zone is UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
