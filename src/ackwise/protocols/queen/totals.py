"""Totals over queues, added up page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median
from typing import Any

from ackwise.core.answers import QueueInfo
from ackwise.core.rows import PartitionRow, Place, QueueSummary, Stats
from ackwise.core.validation import MICROS
from ackwise.protocols.http_response import encode

Fields = dict[str, Any]


def time_lag(oldest_at: int | None, now: int) -> int:
    """Whole seconds that the oldest unfinished message has waited."""
    return 0 if oldest_at is None else max(0, (now - oldest_at) // MICROS)


def message_counts(total: int, pending: int, processing: int, completed: int, dead: int) -> Fields:
    """Queen's six message counts. `failed` is always 0: a failed message is pending again or a dead letter."""
    return {
        "total": total,
        "pending": pending,
        "processing": processing,
        "completed": completed,
        "failed": 0,
        "deadLetter": dead,
    }


def stats_counts(stats: Stats) -> Fields:
    return message_counts(
        stats.messages + stats.scheduled, stats.pending, stats.processing, stats.completed, stats.dead
    )


def summed(counts: Iterable[Fields]) -> Fields:
    total = message_counts(0, 0, 0, 0, 0)
    for row in counts:
        for name in total:
            total[name] += row[name]
    return total


class TagTotals:
    """Totals by namespace or by task. Skips queues without a namespace or a task."""

    def __init__(self, word: str, key: Callable[[QueueInfo], str]) -> None:
        self._word, self._key = word, key
        self._totals: dict[str, Fields] = {}
        self.queues = 0
        """Queues that were counted, also those without a namespace or a task."""

    def add(self, rows: Sequence[QueueSummary]) -> None:
        self.queues += len(rows)
        for row in rows:
            name = self._key(row.info)
            if name:
                zero = {"queues": 0, "partitions": 0, "messages": message_counts(0, 0, 0, 0, 0)}
                total = self._totals.setdefault(name, zero)
                total["queues"] += 1
                total["partitions"] += row.stats.partitions
                total["messages"] = summed((total["messages"], stats_counts(row.stats)))

    def encoded(self, name: str) -> bytes:
        return encode({name: [{self._word: tag, **counts} for tag, counts in sorted(self._totals.items())]})


class Pending:
    """Counts of messages that a group has not finished, by partition."""

    def __init__(self) -> None:
        self.seen = False
        self._total = 0
        self._behind: list[Fields] = []

    def add_places(self, rows: Iterable[Place]) -> None:
        for row in rows:
            self._add(row.partition, row.lag)

    def add_partitions(self, rows: Iterable[PartitionRow]) -> None:
        for row in rows:
            self._add(row.partition, row.messages)

    def _add(self, partition: str, lag: int) -> None:
        self.seen = True
        self._total += lag
        if lag:
            self._behind.append({"partition": partition, "pending": lag})

    def encoded(self, head: Fields) -> bytes:
        counts = {"pending": self._total, "effectivePending": self._total, "partitionsPending": len(self._behind)}
        return encode({**head, **counts, "partitions": self._behind})


class QueenTotals:
    """Totals over all queues."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._queues = self._partitions = 0
        self._messages = message_counts(0, 0, 0, 0, 0)
        self._namespaces: set[str] = set()
        self._tasks: set[str] = set()
        self._groups: set[str] = set()
        self._waits: list[int] = []
        self._lags: list[int] = []

    def add(self, rows: Iterable[QueueSummary]) -> None:
        for row in rows:
            self._queues += 1
            self._partitions += row.stats.partitions
            self._messages = summed((self._messages, stats_counts(row.stats)))
            self._namespaces.add(row.info.namespace)
            self._tasks.add(row.info.task)
            for group in row.stats.groups:
                self._groups.add(group.group)
                self._waits.append(time_lag(group.oldest_unfinished_at, self._now))
                self._lags.append(group.lag)

    def fields(self) -> Fields:
        return {
            "queues": self._queues,
            "partitions": self._partitions,
            "namespaces": len(self._namespaces - {""}),
            "tasks": len(self._tasks - {""}),
            "consumerGroups": len(self._groups),
            "messages": self._messages,
            "lag": {"time": _distribution(self._waits), "offset": _distribution(self._lags)},
        }


def _distribution(values: list[int]) -> Fields:
    values = values or [0]
    return {"avg": round(fmean(values), 3), "median": median(values), "min": min(values), "max": max(values)}
