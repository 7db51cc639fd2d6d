"""Durations and times as people type them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ackwise.core.errors import BadInput

_PART = re.compile(r"(\d+(?:\.\d+)?)(s|m|min|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def duration(text: str, what: str) -> timedelta:
    """`90s`, `15m`, `1h30m`, `7d`."""
    parts = _PART.findall(text.strip())
    if not parts or "".join(map("".join, parts)) != text.strip():
        raise BadInput(f"{what} {text}: write a duration like 90s, 15m, 1h or 7d")
    try:
        return timedelta(seconds=sum(float(count) * _SECONDS[unit] for count, unit in parts))
    except OverflowError:
        raise BadInput(f"{what} {text}: that is too long") from None


def instant(text: str | None, what: str, now: datetime) -> datetime | None:
    """An ISO time (in UTC, unless it says otherwise), or a duration: that long ago."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except ValueError:
        pass
    try:
        return now - duration(text, what)
    except (BadInput, OverflowError):
        raise BadInput(f"{what} {text}: use an ISO time such as 2030-01-31T12:00:00Z, or how long ago: 24h") from None
