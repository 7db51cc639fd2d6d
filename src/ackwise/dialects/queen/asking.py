"""What comes with a request: bodies that may be missing, ids, numbers in the query string."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ackwise.core.errors import BadInput
from ackwise.core.ids import uuid_int
from ackwise.core.native import payloads
from ackwise.dialects.http import Call, parse

_anything = msgspec.json.Decoder(Any)
_NUMBER = re.compile("-?[0-9]{1,18}")
"""`int` alone also takes `1_0`, `+5` and digits of other scripts."""


async def read_object(call: Call) -> dict[str, Any]:
    """The body as an object. None at all is an empty one: Python's client does not send `{}`."""
    body = await call.body()
    value: Any = parse(_anything, body) if body.strip() else None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput("the body must be a JSON object")
    return value


def text_in(body: dict[str, Any], name: str) -> str | None:
    """An optional text of a body."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{name} must be a string, not {type(value).__name__}")
    return value or None


def uuid_in(text: str, what: str) -> str:
    """A UUID in its usual spelling."""
    if uuid_int(text.lower()) is None:
        raise BadInput(f"{what} must be a UUID, not {text!r:.50}")
    return text.lower()


def shape_of(call: Call, *, default: str) -> str:
    """The shape that `?shape=` names: `object` or `array`."""
    shape = call.query.get("shape", default)
    if shape not in ("object", "array"):
        raise BadInput(f"shape must be object or array, not {shape!r:.40}")
    return shape


def number_in(
    query: dict[str, str], name: str, default: int, most: int, *, least: int = 0, lenient: bool = False
) -> int:
    """A whole number of the query string, from `least` to `most`.

    Upstream is `lenient`: the default replaces a value that is no number, the nearest bound a number out of range.
    A text with more than 18 digits is no number.
    """
    text = query.get(name)
    if not text:
        return default
    if not _NUMBER.fullmatch(text):
        if lenient:
            return default
        raise BadInput(f"{name} must be a whole number, not {text!r:.40}")
    number = int(text)
    if lenient:
        return min(max(number, least), most)
    if not least <= number <= most:
        raise BadInput(f"{name} must be {least} to {most}, not {number}")
    return number


def shown_payload(payload: bytes, content_type: str) -> object:
    """A payload inside an answer: JSON as it was pushed, anything else in base64."""
    return msgspec.Raw(payloads.shown(payload, content_type)[0])
