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
MOST_KEYS = 256


class Snapshots:
    """Results of recent reads by key. Concurrent callers of a key wait for the same read."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._entries: OrderedDict[Hashable, tuple[float, asyncio.Task[Any]]] = OrderedDict()

    async def get(self, key: Hashable, read: Callable[[], Awaitable[A]], interval: float = INTERVAL) -> A:
        """The result of the newest read that is at most `interval` seconds old, or of a new one."""
        began, task = self._entries.get(key, (0.0, None))
        if task is None or (task.done() and (_failed(task) or self._now() - began >= interval)):
            task = asyncio.ensure_future(_run(read))
            self._entries[key] = (self._now(), task)
            self._forget()
        self._entries.move_to_end(key)
        # A caller that leaves does not cancel the read for the others.
        result: A = await asyncio.shield(task)
        return result

    def clear(self) -> None:
        """Forget all results: something was changed by a form, and its page must show it."""
        self._entries = OrderedDict((key, entry) for key, entry in self._entries.items() if not entry[1].done())

    def _forget(self) -> None:
        """Drop the keys that were asked for least recently."""
        while len(self._entries) > MOST_KEYS:
            self._entries.popitem(last=False)


async def _run(read: Callable[[], Awaitable[A]]) -> A:
    return await read()


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or task.exception() is not None
