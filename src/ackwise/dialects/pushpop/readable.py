"""Items that are valid JSON and that nobody could read: they would be lost to whoever pops them."""

from __future__ import annotations

import json
import math

import msgspec

from ackwise.core.errors import BadInput

DEEP = 500
_MARGIN = 100
_SHAPES = bytes.maketrans(b"123456789E", b"000000000e")
_SUSPECT = (b"0e000", b"0" * 200)
"""As digits alone: without one of these no number is too large for a double; with one it may still be text."""


def check_readable(item: bytes, what: str) -> None:
    """Refuse numbers that no double holds, and nesting that readers give up on. Most items are hardly looked at."""
    shape = item.translate(_SHAPES, b"+")
    if any(suspect in shape for suspect in _SUSPECT):
        try:
            json.loads(item, parse_int=_number, parse_float=_number)
        except OverflowError:
            raise BadInput(f"{what} has a number that is too large for a double") from None
        except RecursionError:
            raise BadInput(f"{what} is nested too deeply") from None
    if item.count(b"{") + item.count(b"[") > DEEP:
        try:
            msgspec.json.decode(b"[" * _MARGIN + item + b"]" * _MARGIN)
        except RecursionError:
            raise BadInput(f"{what} is nested too deeply") from None


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise OverflowError
    return number
