"""How long calls took."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import msgspec


class Row(msgspec.Struct):
    """One operation: how many there were, how many a second, and milliseconds."""

    operation: str
    count: int
    per_second: float
    mean: float
    p50: float
    p95: float
    p99: float
    most: float
    theirs: str = ""
    """What others say about it."""


class Latencies:
    """Seconds of each call, of any number of callers, and how long it took them together."""

    def __init__(self) -> None:
        self._seconds = array("d")
        self.elapsed = 0.0

    def add(self, seconds: Iterable[float]) -> None:
        self._seconds.extend(seconds)

    def row(self, operation: str, theirs: str = "") -> Row:
        found = sorted(self._seconds)
        count = len(found)

        def at(share: float) -> float:
            return round(1000 * found[min(count - 1, int(share * count))], 2)

        mean = round(1000 * sum(found) / count, 2)
        rate = round(count / self.elapsed, 1)
        return Row(operation, count, rate, mean, at(0.5), at(0.95), at(0.99), at(1.0), theirs)
