"""Budgets of statements: limits of seconds, rows, bytes and changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ackwise.core.errors import BadInput


class StatementLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one statement may use. A call may lower these limits, never raise them."""

    seconds: float = 5.0
    rows: int = 100_000
    bytes: int = 256 << 20
    changes: int = 10_000

    def check(self, where: str = "limits") -> StatementLimits:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not value > 0 or (name != "seconds" and not isinstance(value, int)):
                raise BadInput(f"{where}.{name} must be a number above 0, not {value!r:.40}")
        return self

    def lowered(self, wanted: LowerLimits | None) -> StatementLimits:
        """These limits, lowered where `wanted` is lower."""
        if wanted is None:
            return self
        asked = {name: value for name in self.__struct_fields__ if (value := getattr(wanted, name)) is not None}
        msgspec.structs.replace(self, **asked).check()
        return msgspec.structs.replace(self, **{name: min(value, getattr(self, name)) for name, value in asked.items()})


class LowerLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits that a call asks for. None keeps the limit in force."""

    seconds: float | None = None
    rows: int | None = None
    bytes: int | None = None
    changes: int | None = None


def lower_limits(given: Mapping[str, float] | None) -> LowerLimits | None:
    """Limits as a caller of the Python interface names them."""
    if given is None:
        return None
    try:
        return msgspec.convert(dict(given), LowerLimits)
    except msgspec.ValidationError as problem:
        raise BadInput(f"limits: {problem}") from None


DEFAULT_LIMITS = StatementLimits()

FETCH_BYTES = 8 << 20
"""Bytes of events after which a fetch ends."""


def weight(value: Any) -> int:
    """About how many bytes a value of an answer takes as JSON. Lists and objects count with all that they hold.

    A string that stands in an answer many times is in memory once, but the client gets each copy.
    """
    kind = type(value)
    if kind is str:
        return len(value) if value.isascii() else 2 * len(value)
    if kind is list:
        return 8 + sum(map(weight, value))
    if kind is dict:
        return 8 + sum(len(key) + weight(one) for key, one in value.items())
    return 8
