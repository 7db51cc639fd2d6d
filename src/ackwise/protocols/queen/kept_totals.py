"""Totals over many queues, kept for a while. Totals over few queues are counted for each request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

MANY = 1000
"""Queues above which totals are kept."""
SHORTEST, LONGEST = 5.0, 60.0
"""Seconds for which totals are kept: ten times as long as their count took, within these bounds."""
MOST_KEPT = 100
"""Totals that are kept at once. Each namespace and each task has its own."""

Key = tuple[str | None, ...]


class CountedTotals(NamedTuple):
    """Counted totals, and how many queues they count."""

    queues: int
    value: Any


class _Kept(NamedTuple):
    totals: CountedTotals
    counted_at: float
    keep: float


class KeptTotals:
    """Totals by their filters. Requests for the totals of many queues share one count."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: dict[Key, _Kept] = {}
        self._running: dict[Key, asyncio.Task[CountedTotals]] = {}

    async def get(
        self, key: Key, count: Callable[[], Awaitable[CountedTotals]], *, fresh: bool = False
    ) -> tuple[Any, float]:
        """The totals and their age in seconds. `fresh` counts now."""
        kept = self._kept.get(key)
        if kept is None:
            return (await self._count(key, count)).value, 0.0
        age = self._now() - kept.counted_at
        if age < kept.keep and not fresh:
            return kept.totals.value, age
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(self._count(key, count))
            task.add_done_callback(lambda done: self._end(key, done))
        # A client that leaves does not end the count of the others.
        return (await asyncio.shield(task)).value, 0.0

    def _end(self, key: Key, task: asyncio.Task[CountedTotals]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # asyncio reports an error that is never read, and all clients may have left

    async def _count(self, key: Key, count: Callable[[], Awaitable[CountedTotals]]) -> CountedTotals:
        began = self._now()
        totals = await count()
        if totals.queues > MANY:
            now = self._now()
            self._kept[key] = _Kept(totals, now, min(max(SHORTEST, 10 * (now - began)), LONGEST))
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        else:
            self._kept.pop(key, None)
        return totals
