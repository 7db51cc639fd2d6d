"""Page cursors: the position after a page's last row as opaque text."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, TypeVar

import msgspec

from ackwise.core.errors import BadInput

T = TypeVar("T")
LONGEST = 4096


def text(place: object) -> str | None:
    """The cursor that a client sends to read the next page. None at the end of a list."""
    return None if place is None else urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def parse(cursor: str, kind: type[T] | Any, what: str = "cursor") -> T:
    """The position that a cursor names."""
    try:
        if len(cursor) > LONGEST:
            raise ValueError(cursor)
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        place: T = msgspec.json.decode(urlsafe_b64decode(padded), type=kind)
    except (ValueError, msgspec.DecodeError):
        raise BadInput(f"{what} must be the cursor of the previous page, not {cursor!r:.60}") from None
    return place
