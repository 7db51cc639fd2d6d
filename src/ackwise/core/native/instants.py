"""Instants are ISO 8601 in UTC for people and integer microseconds inside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from ackwise.core.errors import BadInput
from ackwise.core.limits import LAST_INSTANT

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


@lru_cache(maxsize=4096)
def text(at: int) -> str:
    """As `2030-01-31T12:00:00.000000Z`; a batch has few different ones, so they are remembered."""
    return (EPOCH + timedelta(microseconds=min(at, LAST_INSTANT))).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def text_or_none(at: int | None) -> str | None:
    return None if at is None else text(at)


def parse(value: str, what: str) -> int:
    """Microseconds of an ISO time; one without a timezone is refused, because nobody knows which it means."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise BadInput(f"{what} must be an ISO time such as 2030-01-31T12:00:00Z, not {value!r:.60}") from None
    if moment.tzinfo is None:
        raise BadInput(f"{what} has no timezone; write for example 2030-01-31T12:00:00Z")
    return within((moment - EPOCH) // _MICRO, what)


def within(at: int, what: str) -> int:
    """An instant that can be kept and shown."""
    if not 0 <= at <= LAST_INSTANT:
        raise BadInput(f"{what} lies {'before 1970' if at < 0 else 'after 9999'}")
    return at
