"""Fills the kinds of older dead letters, a bounded number at a time. Schema step 10 runs it in its transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ackwise.core.error_kinds import error_kind

STEP = 10
"""The schema step that adds the column."""
CHUNK = 1000
"""Letters that are in memory at once."""


def fill(read: Callable[[int, int], list[tuple[int, str]]], write: Callable[[Iterable[tuple[int, str]]], None]) -> None:
    """Write (id, kind) of every letter. `read` returns (id, error) of the letters behind an id, up to a number."""
    last = -1
    while letters := read(last, CHUNK):
        write([(number, error_kind(error)) for number, error in letters])
        last = letters[-1][0]
