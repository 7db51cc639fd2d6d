"""The workers of one handler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ackwise.core.settlement import Outcome
from ackwise.subscriber.feeds.feed import Feed
from ackwise.subscriber.handover import Handover
from ackwise.subscriber.subscription import Subscription

log = logging.getLogger("ackwise.subscriber")

AHEAD = 0.05
"""Without a `prefetch` as much is claimed ahead as the workers will have done in so many seconds."""
MOST_AHEAD = 256
_WEIGHT = 0.05


class Workers:
    """So many at once, fed in the order of the queue."""

    def __init__(self, subscription: Subscription, feed: Feed, handle: Callable[[Handover], Awaitable[None]]) -> None:
        self._subscription, self._feed, self._handle = subscription, feed, handle
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[Handover] = asyncio.Queue()
        self._running: dict[Handover, asyncio.Task[None]] = {}
        self._lost: set[Handover] = set()
        self._lasts: float | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks = [
            self._loop.create_task(self._work(), name=f"{subscription.name}-{number}")
            for number in range(subscription.concurrency)
        ]

    @property
    def busy(self) -> int:
        return self._waiting.qsize() + len(self._running)

    @property
    def room(self) -> int:
        return self._subscription.concurrency + self._ahead() - self.busy

    def _ahead(self) -> int:
        given = self._subscription
        if given.acked_first:
            # Whatever is claimed is acked already: only what is begun at once.
            return 0
        if given.prefetch is not None:
            return given.prefetch
        if self._lasts is None:
            return 0
        return min(MOST_AHEAD, int(given.concurrency * AHEAD / max(self._lasts, 1e-5)))

    def put(self, handover: Handover) -> None:
        self._idle.clear()
        self._waiting.put_nowait(handover)

    def lost(self, handover: Handover) -> None:
        self._lost.add(handover)
        task = self._running.get(handover)
        if task is not None:
            log.warning("%s lost the lease of %s and is cancelled", self._subscription.name, handover.id)
            task.cancel()

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            handover = await self._waiting.get()
            if handover not in self._lost:
                self._running[handover] = task
                began = self._loop.time()
                try:
                    await self._handle(handover)
                except asyncio.CancelledError:
                    if handover not in self._lost:
                        raise
                    task.uncancel()
                except Exception:
                    # Never the end of a worker; the message comes back at its deadline.
                    log.exception("%s: %s could not be handled", self._subscription.name, handover.id)
                    handover.let_go()
                finally:
                    del self._running[handover]
                    took = self._loop.time() - began
                    self._lasts = took if self._lasts is None else self._lasts + _WEIGHT * (took - self._lasts)
            self._lost.discard(handover)
            if not self.busy:
                self._idle.set()
            self._feed.wake()

    async def drain(self, grace: float) -> None:
        """Give back what was not begun, let the rest finish for `grace` seconds, cancel what is left."""
        while not self._waiting.empty():
            handover = self._waiting.get_nowait()
            if handover.settleable and handover not in self._lost:
                handover.settle_soon(Outcome.RELEASE)
        if self._running:
            self._idle.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
