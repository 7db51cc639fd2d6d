"""Settings that the dashboard shows: name, value and origin."""

from __future__ import annotations

import msgspec


class ShownSetting(msgspec.Struct, frozen=True):
    """An effective setting as text. Secrets are masked.

    `origin` is `flag`, `environment`, `file`, `default`, or `program` for a server that a program starts.
    """

    name: str
    value: str
    origin: str
    where: str = ""
    """The flag, the variable or the file."""
