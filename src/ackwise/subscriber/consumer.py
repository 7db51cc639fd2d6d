"""One subscription at work: its feed, its workers and the threads of its handler."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ackwise.subscriber.feeds.feed import Feed
from ackwise.subscriber.subscription import Subscription
from ackwise.subscriber.workers import Workers

if TYPE_CHECKING:
    from ackwise.subscriber.app import App

log = logging.getLogger("ackwise.subscriber")

LAST_WORDS = 3.0
"""So many seconds has what was done last to be settled, and a poll that is called back to return ..."""
LAST_TRY = 1.0
"""... and so many what is then still left."""


class Consumer:
    """From its start to its drain."""

    def __init__(self, app: App, subscription: Subscription, feed: Feed) -> None:
        self._app, self._subscription, self._feed = app, subscription, feed
        self._executor = (
            ThreadPoolExecutor(subscription.concurrency, thread_name_prefix=subscription.name)
            if subscription.signature.in_thread
            else None
        )
        self.handle = app.handling(subscription, self._executor)
        self._workers: Workers | None = None
        self._feeding: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._feed.open()
        handle = self.handle
        self._workers = Workers(self._subscription, self._feed, handle, lambda: handle.left_in_threads, self._app.exits)
        self._feeding = asyncio.create_task(self._feed.run(self._workers), name=f"{self._subscription.name}-feed")
        self._feeding.add_done_callback(self._ended)

    def _ended(self, feeding: asyncio.Task[None]) -> None:
        if self._workers is not None:
            self._workers.fed_no_more()
        if not feeding.cancelled() and feeding.exception() is not None:
            log.error("%s is fed no more", self._subscription.name, exc_info=feeding.exception())

    def look(self) -> None:
        self._feed.look()

    @property
    def alive(self) -> bool:
        """Fed, and everybody at work."""
        feeding, workers = self._feeding, self._workers
        return feeding is not None and not feeding.done() and workers is not None and workers.alive

    @property
    def in_threads(self) -> int:
        """How many handlers are at work in threads, which nobody can cancel."""
        return self.handle.in_threads

    def stop_taking(self) -> None:
        self._feed.stop()
        if self._workers is not None:
            self._workers.give_back()

    def hurry(self, grace: float = 0.0) -> None:
        if self._workers is not None:
            self._workers.hurry(grace)

    @property
    def runs_caller(self) -> bool:
        """Whether whoever asks is its handler, or part of one."""
        return self._workers is not None and self._workers.runs_caller

    async def stop(self, grace: float) -> None:
        try:
            if self._workers is not None:
                await self._workers.drain(grace, lambda: self.handle.unsettled)
            if self._feeding is not None:
                await asyncio.wait([self._feeding], timeout=LAST_WORDS)
                self._feeding.cancel()
                await asyncio.gather(self._feeding, return_exceptions=True)
            try:
                async with asyncio.timeout(LAST_TRY):
                    await self._feed.flush()
            except Exception as problem:
                why = str(problem) or type(problem).__name__
                log.error("%s: what it did last could not be settled: %s", self._subscription.name, why)
        finally:
            if self._feeding is not None:
                self._feeding.cancel()
            if self._executor is not None:
                self._executor.shutdown(wait=False)
