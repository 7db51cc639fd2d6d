"""Budgets of statements: limits of seconds, rows, bytes and changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ackwise.core.errors import BadInput


class StatementLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one statement. A call may lower them, never raise them."""

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
        lower = {name: value for name in self.__struct_fields__ if (value := getattr(wanted, name)) is not None}
        msgspec.structs.replace(self, **lower).check()
        return msgspec.structs.replace(self, **{name: min(value, getattr(self, name)) for name, value in lower.items()})


class LowerLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits in a call. None keeps the server's limit."""

    seconds: float | None = None
    rows: int | None = None
    bytes: int | None = None
    changes: int | None = None


def lower_limits(limits: Mapping[str, float] | None) -> LowerLimits | None:
    """Limits from a dictionary of the Python API."""
    if limits is None:
        return None
    try:
        return msgspec.convert(dict(limits), LowerLimits)
    except msgspec.ValidationError as problem:
        raise BadInput(f"limits: {problem}") from None


DEFAULT_LIMITS = StatementLimits()


def weight(value: Any) -> int:
    """The approximate size of a value as JSON, with all values inside it.

    A string that occurs several times in an answer counts each time: the client gets each copy.
    """
    kind = type(value)
    if kind is str:
        return len(value) if value.isascii() else 2 * len(value)
    if kind is list:
        return 8 + sum(map(weight, value))
    if kind is dict:
        return 8 + sum(len(key) + weight(item) for key, item in value.items())
    return 8
