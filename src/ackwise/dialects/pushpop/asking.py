"""What comes with a request: options in the query or the headers, numbers that are numbers, bodies that are objects."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ackwise.core.errors import BadInput
from ackwise.dialects.http import Call, parse

_WHOLE = re.compile(r"[+-]?[0-9]+")
_LONGEST_NUMBER = 18
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_object = msgspec.json.Decoder(dict[str, Any])


def option(call: Call, name: str) -> str | None:
    """The query says it, or else a header of the same name."""
    given = call.query.get(name)
    if given is not None:
        return given
    header = call.header(name.encode())
    return header.decode("latin-1") if header else None


def flag(call: Call, name: str) -> bool:
    text = option(call, name)
    if text is None:
        return False
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise BadInput(f"{name} must be true or false, not {text!r:.50}")


def number(call: Call, name: str, default: int) -> int:
    """A whole number; one with very many digits is as large as numbers get."""
    text = option(call, name)
    if text is None:
        return default
    if not _WHOLE.fullmatch(text):
        raise BadInput(f"{name} must be a whole number, not {text!r:.50}")
    digits = text.lstrip("+-0") or "0"
    size = int(digits) if len(digits) <= _LONGEST_NUMBER else 10**_LONGEST_NUMBER
    return -size if text.startswith("-") else size


def whole(value: object, name: str, least: int, most: int) -> int:
    """A number of a body: bool, floats and text are none."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadInput(f"{name} must be a whole number from {least} to {most}")
    return value


async def read_object(call: Call) -> dict[str, Any]:
    """The body as an object, whatever its content type says; none at all is an empty one."""
    body = await call.body()
    return parse(_object, body) if body.strip() else {}
