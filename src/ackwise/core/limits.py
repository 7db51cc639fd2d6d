"""Checks of what callers hand in. Every one raises `BadInput` before anything is taken or created."""

from __future__ import annotations

import math
from datetime import timedelta

from ackwise.core.errors import BadInput

MICROS = 1_000_000
MAX_NAME = 255
MAX_TRANSACTION_ID = 512
MAX_LEASE_SECONDS = 24 * 3600.0
MAX_DELAY_SECONDS = 10 * 365 * 24 * 3600.0
MAX_BATCH = 1_000_000
MAX_CLAIM_BYTES = 1 << 50
DEFAULT_CLAIM_BYTES = 16 << 20
"""Bytes of payload at which a claim without its own bound stops."""
MAX_PUSH_ITEMS = 100_000
MAX_PRIORITY = 2**31 - 1
MAX_HEADERS_BYTES = 64 * 1024
LONGEST_ERROR = 8192
LONGEST_TRACE = 2000
LAST_INSTANT = 253_402_300_799_999_999
"""The end of the year 9999."""
ANSWER_BYTES = 16 << 20
"""Bytes that one answer carries: a page of messages or dead letters ends there, with at least one row."""
ROW_BYTES = 300
"""What a page counts for each row besides its payload, its headers and its texts: ids, names and instants."""
MOST_ROWS = 100_000
"""Rows of one page of messages or dead letters. A larger `limit` gets so many, and the next page has the rest."""
DEFAULT_MAX_PAYLOAD = 8 * 1024 * 1024

Seconds = float | int | timedelta


def name(value: object, what: str = "name") -> str:
    """A name of a queue, partition, group or owner."""
    if not isinstance(value, str):
        raise BadInput(f"{what} must be a string, not {type(value).__name__}")
    if not value:
        raise BadInput(f"{what} must not be empty")
    if len(value) > MAX_NAME:
        raise BadInput(f"{what} is longer than {MAX_NAME} characters")
    return storable(value, what)


def transaction_id(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise BadInput("transaction_id must be a non-empty string")
    if len(value) > MAX_TRANSACTION_ID:
        raise BadInput(f"transaction_id is longer than {MAX_TRANSACTION_ID} characters")
    return storable(value, "transaction_id")


def text(value: object, what: str, longest: int) -> str:
    """Free text such as an error: cut to `longest`, never refused for its content."""
    if not isinstance(value, str):
        raise BadInput(f"{what} must be a string, not {type(value).__name__}")
    return value[:longest].replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def storable(value: object, what: str) -> str:
    """Text that every database takes: no NUL, no lone surrogates."""
    if not isinstance(value, str):
        raise BadInput(f"{what} must be a string, not {type(value).__name__}")
    if "\0" in value:
        raise BadInput(f"{what} must not contain NUL")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise BadInput(f"{what} must be valid Unicode (it has a lone surrogate)") from None
    return value


def micros(value: object, what: str, *, least: float = 0.0, most: float = MAX_DELAY_SECONDS) -> int:
    """A duration in seconds (number or timedelta) as integer microseconds."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(f"{what} must be a number of seconds or a timedelta, not {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"{what} must be a finite number")
    if value < least or value > most:
        raise BadInput(f"{what} must be between {least:g} and {most:g} seconds")
    return round(value * MICROS)


def lease_micros(value: object) -> int:
    """A lease time: more than nothing, at most a day."""
    return micros(value, "lease", least=0.001, most=MAX_LEASE_SECONDS)


def lease_of(value: object) -> int:
    """The same, already in microseconds."""
    return count(value, "lease", least=1000, most=round(MAX_LEASE_SECONDS * MICROS))


def claim_bytes(value: object, what: str = "max_bytes") -> int:
    """Bytes of payload at which a claim stops."""
    return count(value, what, most=MAX_CLAIM_BYTES)


def instant(value: object, what: str) -> int:
    """Microseconds since 1970 that every store can keep and every face can spell."""
    return count(value, what, least=0, most=LAST_INSTANT)


def one_of(value: object, what: str, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise BadInput(f"{what} must be one of {', '.join(allowed)}, not {value!r:.50}")
    return value


def start(value: object) -> str | int:
    """Where a new group begins."""
    return one_of(value, "start", ("all", "new")) if isinstance(value, str) else instant(value, "start")


def tag(value: object, what: str) -> str:
    """A namespace or task: a name that may be empty."""
    return "" if value == "" else name(value, what)


def count(value: object, what: str, *, least: int = 1, most: int = MAX_BATCH) -> int:
    """A whole number in a range; bool is not a number here."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"{what} must be a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise BadInput(f"{what} must be between {least} and {most}")
    return value
