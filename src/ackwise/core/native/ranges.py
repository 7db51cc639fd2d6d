"""Reading stored messages by their place."""

from __future__ import annotations

import msgspec

from ackwise.core import limits
from ackwise.core.errors import BadInput

MOST_ROWS = 100_000


class ReadBody(msgspec.Struct, forbid_unknown_fields=True):
    """Messages [lo, hi) of lanes, and which of their columns."""

    ranges: list[tuple[int, int, int]]
    columns: list[str]


def check(body: ReadBody, known: tuple[str, ...]) -> None:
    rows = 0
    for lane, lo, hi in body.ranges:
        limits.count(lane, "lane", most=(1 << 23) - 2)
        limits.count(lo, "lo", least=0, most=(1 << 40) - 1)
        rows += limits.count(hi, "hi", least=lo, most=(1 << 40) - 1) - lo
    limits.count(rows, "the number of messages", least=0, most=MOST_ROWS)
    for name in body.columns:
        if name not in known:
            raise BadInput(f"unknown column {name!r:.60}; known: {', '.join(known)}")
    if len(set(body.columns)) < len(body.columns):
        raise BadInput("a column comes twice")
