"""How values are spelled for people, on pages and in a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

NOTHING = "-"

Kind = Literal["text", "number", "share", "duration", "moment", "error", "any"]


class Column(NamedTuple):
    """`kind` says how its cells are spelled."""

    key: str
    label: str
    kind: Kind = "text"


def number(value: float) -> str:
    """`1,234`, `0.25`, `12.5`."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def duration(value: float) -> str:
    """`350 ms`, `12.5 s`, `4 min`, `3.2 h`, `5 d`."""
    if 0 < value < 1:
        return f"{value * 1000:.3g} ms"
    for least, size, unit in ((172_800, 86_400, "d"), (7200, 3600, "h"), (120, 60, "min")):
        if value >= least:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"


def moment(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def cell(value: Any, kind: Kind) -> str:
    if value is None:
        return NOTHING
    match kind:
        case "number":
            return number(value)
        case "share":
            return f"{value:.2%}"
        case "duration":
            return duration(value)
        case "moment":
            return moment(value)
        case "any" if isinstance(value, datetime):
            return moment(value)
        case "any" if isinstance(value, int | float):
            return number(value)
        case _:
            return str(value)
