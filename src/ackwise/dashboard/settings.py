"""Settings that the dashboard shows: name, value and origin."""

from __future__ import annotations

import msgspec


class ShownSetting(msgspec.Struct, frozen=True):
    """An effective setting as text. `origin` is `flag`, `environment`, `file` or `default`. Secrets are masked."""

    name: str
    value: str
    origin: str
    where: str = ""
    """The flag, the variable or the file."""
