"""What comes with a request: bodies that may be missing, ids, numbers in the query string."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core.errors import BadInput
from ackwise.core.ids import uuid_int
from ackwise.core.native import payloads
from ackwise.dialects.http import Call, parse

_anything = msgspec.json.Decoder(Any)


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


def number_in(query: dict[str, str], name: str, default: int, most: int, *, least: int = 0) -> int:
    """What is not a number is the default, as upstream has it; one that is too small or too large is the bound."""
    try:
        return min(max(int(query.get(name, "")), least), most)
    except ValueError:
        return default


def shown_payload(payload: bytes, content_type: str) -> object:
    """A payload inside an answer: JSON as it was pushed, anything else in base64."""
    return msgspec.Raw(payloads.shown(payload, content_type)[0])
