"""ISO 8601 text, datetimes and microseconds, converted into each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from ackwise.core.errors import BadInput
from ackwise.core.validation import LAST_INSTANT, MAX_DELAY_SECONDS, MICROS, Seconds, micros


def moment(at: int) -> datetime:
    """The instant as a datetime in UTC."""
    return EPOCH + timedelta(microseconds=at)


def instant(value: object, what: str) -> int:
    """A datetime as microseconds. Raises `BadInput` for a datetime without a timezone."""
    if not isinstance(value, datetime):
        raise BadInput(f"{what} must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None:
        raise BadInput(f"{what} has no timezone; use for example datetime.now(timezone.utc)")
    return within((value - EPOCH) // _MICRO, what)


def instant_or_none(value: object, what: str) -> int | None:
    return None if value is None else instant(value, what)


def seconds(value: Seconds, what: str, most: float = MAX_DELAY_SECONDS) -> float:
    """A duration as a checked number of seconds."""
    return micros(value, what, most=most) / MICROS


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


@lru_cache(maxsize=4096)
def text(at: int) -> str:
    """An instant as `2030-01-31T12:00:00.000000Z`. Cached, because a batch has few different instants."""
    return (EPOCH + timedelta(microseconds=min(at, LAST_INSTANT))).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def text_or_none(at: int | None) -> str | None:
    return None if at is None else text(at)


def parse(value: str, what: str) -> int:
    """Microseconds of an ISO time. Raises `BadInput` for a time without a timezone."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise BadInput(f"{what} must be an ISO time such as 2030-01-31T12:00:00Z, not {value!r:.60}") from None
    if moment.tzinfo is None:
        raise BadInput(f"{what} has no timezone; write for example 2030-01-31T12:00:00Z")
    return within((moment - EPOCH) // _MICRO, what)


def within(at: int, what: str) -> int:
    """Check that an instant lies between 1970 and 9999."""
    if not 0 <= at <= LAST_INSTANT:
        raise BadInput(f"{what} lies {'before 1970' if at < 0 else 'after 9999'}")
    return at
