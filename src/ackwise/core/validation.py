"""Checks of names, counts, instants, hosts. Raises `BadInput`."""

from __future__ import annotations

import ipaddress
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
"""Payload bytes at which a claim without its own limit stops."""
MAX_PUSH_ITEMS = 100_000
MAX_PRIORITY = 2**31 - 1
MAX_HEADERS_BYTES = 64 * 1024
LONGEST_ERROR = 8192
LONGEST_TRACE = 2000
LAST_INSTANT = 253_402_300_799_999_999
"""The end of the year 9999."""
ANSWER_BYTES = 16 << 20
"""Bytes of one answer. A page of messages or dead letters ends here, with at least one row."""
ROW_BYTES = 300
"""Bytes that a page counts per row for ids, names and instants."""
MOST_ROWS = 100_000
"""Rows of one page of messages or dead letters, however large `limit` is."""
DEFAULT_MAX_PAYLOAD = 8 * 1024 * 1024

Seconds = float | int | timedelta


def name(value: object, what: str = "name") -> str:
    """Check the name of a queue, partition, group or owner."""
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
    """Free text such as an error, cut to `longest`. Replaces characters that cannot be stored."""
    if not isinstance(value, str):
        raise BadInput(f"{what} must be a string, not {type(value).__name__}")
    return value[:longest].replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def at_most(value: object, what: str, longest: int) -> str:
    """Check the length of a text."""
    if not isinstance(value, str):
        raise BadInput(f"{what} must be a string, not {type(value).__name__}")
    if len(value) > longest:
        raise BadInput(f"{what} is longer than {longest} characters")
    return value


def storable(value: object, what: str) -> str:
    """Check that every database can store a text: no NUL, no lone surrogates."""
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
    """A lease time in seconds (1 ms to a day) as microseconds."""
    return micros(value, "lease", least=0.001, most=MAX_LEASE_SECONDS)


def lease_of(value: object) -> int:
    """Check a lease time in microseconds: 1 ms to a day."""
    return count(value, "lease", least=1000, most=round(MAX_LEASE_SECONDS * MICROS))


def claim_bytes(value: object, what: str = "max_bytes") -> int:
    """Check the payload bytes at which a claim stops."""
    return count(value, what, most=MAX_CLAIM_BYTES)


def instant(value: object, what: str) -> int:
    """Check microseconds since 1970, up to the year 9999."""
    return count(value, what, least=0, most=LAST_INSTANT)


def one_of(value: object, what: str, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise BadInput(f"{what} must be one of {', '.join(allowed)}, not {value!r:.50}")
    return value


def start(value: object) -> str | int:
    """Check where a new group starts: `all`, `new` or an instant."""
    return one_of(value, "start", ("all", "new")) if isinstance(value, str) else instant(value, "start")


def seek(to: object, by: object, partition: str | None) -> None:
    """Check where a seek moves a group: `start`, `end`, an instant, or by `seq` a number in one partition."""
    one_of(by, "by", ("time", "seq"))
    if isinstance(to, str):
        one_of(to, "to", ("start", "end"))
    else:
        instant(to, "to")
    if by == "seq" and (partition is None or isinstance(to, str)):
        raise BadInput("a seek to a seq names a partition and a number")


def tag(value: object, what: str) -> str:
    """Check a namespace or task: a name that may be empty."""
    return "" if value == "" else name(value, what)


def count(value: object, what: str, *, least: int = 1, most: int = MAX_BATCH) -> int:
    """Check a whole number in a range. A bool is no number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"{what} must be a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise BadInput(f"{what} must be between {least} and {most}")
    return value


def is_ip_literal(host: str) -> bool:
    """Whether a host is an IP address. IPv6 may be in brackets."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a host names this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
