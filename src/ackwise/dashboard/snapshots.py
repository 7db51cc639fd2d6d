"""Cache of reads: all pages and live blocks share one read per key and interval."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

A = TypeVar("A")

INTERVAL = 2.0
"""Seconds for which a read is fresh."""
SHARE = 20
"""A read is fresh for at least this many times as long as it took, so one key costs at most 5 % of a thread."""
LONGEST = 30.0
"""Maximum number of seconds for which a slow read stays fresh, if its interval is not longer."""
MOST_KEYS = 256


class Snapshots:
    """Results of recent reads by key. Concurrent callers of a key wait for the same read."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    async def get(self, key: Hashable, read: Callable[[], Awaitable[A]], interval: float = INTERVAL) -> A:
        """The result of the newest read if it is fresh, or of a new one."""
        entry = self._entries.get(key)
        if entry is None or not entry.is_fresh(interval, self._now()):
            entry = self._entries[key] = _Entry(read, self._now)
            self._forget()
        self._entries.move_to_end(key)
        # A caller that leaves does not cancel the read for the others.
        result: A = await asyncio.shield(entry.task)
        return result

    def clear(self) -> None:
        """Drop all results, so that the next page shows the change that a form made."""
        self._entries.clear()

    def _forget(self) -> None:
        """Drop the least recently used keys."""
        while len(self._entries) > MOST_KEYS:
            self._entries.popitem(last=False)


class _Entry:
    """A read that runs or has run."""

    def __init__(self, read: Callable[[], Awaitable[Any]], now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()
        self._took = 0.0
        self.task = asyncio.ensure_future(self._run(read))

    async def _run(self, read: Callable[[], Awaitable[Any]]) -> Any:
        result = await read()
        self._took = self._now() - self._began
        return result

    def is_fresh(self, interval: float, now: float) -> bool:
        """Whether callers may use the result, or wait for it."""
        if not self.task.done():
            return True
        if self.task.cancelled() or self.task.exception() is not None:
            return False
        return now - self._began < max(interval, min(LONGEST, SHARE * self._took))
