"""Time windows and buckets of Queen's status and analytics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ackwise.core.errors import BadInput
from ackwise.core.rows import LedgerTotal
from ackwise.core.validation import MICROS
from ackwise.protocols.queen.vocabulary import parse_time, show_time

MINUTE = 60 * MICROS
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LONGEST_WINDOW = 31 * DAY
"""The ledger keeps counts for this time."""
_BUCKETS = ((HOUR, 1), (6 * HOUR, 5), (DAY, 15), (7 * DAY, 60))
_WIDEST = 360
Counts = dict[str, int]


class Window(NamedTuple):
    """Time from `start` to `end`, in buckets of some minutes. The buckets begin at multiples of their size."""

    start: int
    end: int
    minutes: int

    @property
    def size(self) -> int:
        return self.minutes * MINUTE

    def buckets(self) -> range:
        """The beginnings of all buckets, oldest first."""
        return range(self.start // self.size * self.size, self.end + 1, self.size)

    @property
    def seconds(self) -> int:
        return self.minutes * 60

    def fields(self) -> dict[str, Any]:
        return {"from": show_time(self.start), "to": show_time(self.end)}


def window_of(query: dict[str, str], now: int, *, default: int = HOUR, minutes: int | None = None) -> Window:
    """Window from `from` to `to`. Without `minutes`, Queen's rule chooses the size of the buckets."""
    end = parse_time(query["to"], "to", end_of_day=True) if query.get("to") else now
    start = parse_time(query["from"], "from") if query.get("from") else max(0, end - default)
    if start > end:
        raise BadInput("from must not be after to")
    if end - start > LONGEST_WINDOW:
        raise BadInput(f"a window has at most {LONGEST_WINDOW // DAY} days, because the server keeps no older counts")
    if minutes is None:
        minutes = next((size for longest, size in _BUCKETS if end - start <= longest), _WIDEST)
    return Window(start, end, minutes)


def by_bucket(rows: Iterable[LedgerTotal]) -> dict[int, Counts]:
    """Counts by bucket and outcome. A bucket without a count is absent."""
    buckets: dict[int, Counts] = {}
    for row in rows:
        counts = buckets.setdefault(row.bucket, {})
        counts[row.outcome] = counts.get(row.outcome, 0) + row.count
    return buckets


def total_of(buckets: dict[int, Counts]) -> Counts | None:
    """Counts over all buckets. None without a bucket."""
    total: Counts = {}
    for counts in buckets.values():
        for outcome, count in counts.items():
            total[outcome] = total.get(outcome, 0) + count
    return total if buckets else None


class Sample(NamedTuple):
    """Counts of a bucket as Queen names them. All are None in a bucket without a count."""

    pushed: int | None
    acked: int | None
    failed: int | None
    """Failures: retried messages and dead letters."""
    dead: int | None

    @property
    def settled(self) -> int | None:
        return None if self.acked is None or self.failed is None else self.acked + self.failed


NO_SAMPLE = Sample(None, None, None, None)


def sample_of(counts: Counts | None) -> Sample:
    if counts is None:
        return NO_SAMPLE
    dead = counts.get("dead", 0)
    return Sample(counts.get("pushed", 0), counts.get("acked", 0), counts.get("retried", 0) + dead, dead)


def rate(count: int | None, seconds: int) -> float | None:
    return None if count is None else round(count / seconds, 3)
