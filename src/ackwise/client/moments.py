"""Instants are datetimes for people and integer microseconds inside; durations are seconds for people."""

from __future__ import annotations

from datetime import datetime, timedelta

from ackwise.core.errors import BadInput
from ackwise.core.limits import MAX_DELAY_SECONDS, MICROS, Seconds, micros
from ackwise.core.native.instants import EPOCH, within

_MICRO = timedelta(microseconds=1)


def moment(at: int) -> datetime:
    """The instant as a datetime in UTC."""
    return EPOCH + timedelta(microseconds=at)


def instant(value: object, what: str) -> int:
    """A datetime as microseconds; one without a timezone is refused, because nobody knows which it means."""
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
