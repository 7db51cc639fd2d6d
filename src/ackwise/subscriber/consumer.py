"""Consumer: the feed and the workers of one subscription."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ackwise.subscriber.feeds.port import Feed
from ackwise.subscriber.handler_threads import HandlerThreads
from ackwise.subscriber.subscription import Subscription
from ackwise.subscriber.workers import Workers

if TYPE_CHECKING:
    from ackwise.subscriber.app import App

log = logging.getLogger("ackwise.subscriber")

FEED_END_SECONDS = 3.0
"""Seconds for the feed to end: it sends the last settlements and stops its poll."""
LAST_FLUSH_SECONDS = 1.0
"""Seconds for a last flush after that."""


class Consumer:
    """Runs one subscription from its start to its drain."""

    def __init__(self, app: App, subscription: Subscription, feed: Feed) -> None:
        self._app, self._subscription, self._feed = app, subscription, feed
        self._executor = (
            HandlerThreads(subscription.concurrency, subscription.name) if subscription.signature.in_thread else None
        )
        self.handle = app.handler_runner(subscription, self._executor)
        self._workers: Workers | None = None
        self._feed_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._feed.open()
        handle = self.handle
        self._workers = Workers(
            self._subscription, self._feed, handle, lambda: handle.abandoned_threads, self._app.exit_with
        )
        self._feed_task = asyncio.create_task(self._feed.run(self._workers), name=f"{self._subscription.name}-feed")
        self._feed_task.add_done_callback(self._ended)

    def _ended(self, feed_task: asyncio.Task[None]) -> None:
        if self._workers is not None:
            self._workers.feed_ended()
        if not feed_task.cancelled() and feed_task.exception() is not None:
            log.error("the feed of %s ended with an error", self._subscription.name, exc_info=feed_task.exception())

    def clock_moved(self) -> None:
        self._feed.clock_moved()

    @property
    def alive(self) -> bool:
        """Whether the feed and all workers run."""
        feed_task, workers = self._feed_task, self._workers
        return feed_task is not None and not feed_task.done() and workers is not None and workers.alive

    @property
    def in_threads(self) -> int:
        """Number of handlers that run in threads. A thread cannot be cancelled."""
        return self.handle.in_threads

    def stop_feed(self) -> None:
        self._feed.stop()
        if self._workers is not None:
            self._workers.release_waiting()

    def shorten_grace(self, grace: float = 0.0) -> None:
        if self._workers is not None:
            self._workers.shorten_grace(grace)

    @property
    def runs_caller(self) -> bool:
        """Whether the caller runs inside this consumer's handler."""
        return self._workers is not None and self._workers.runs_caller

    async def stop(self, grace: float) -> None:
        try:
            if self._workers is not None:
                await self._workers.drain(grace, lambda: self.handle.unsettled)
            if self._feed_task is not None:
                await asyncio.wait([self._feed_task], timeout=FEED_END_SECONDS)
                self._feed_task.cancel()
                await asyncio.gather(self._feed_task, return_exceptions=True)
            try:
                async with asyncio.timeout(LAST_FLUSH_SECONDS):
                    await self._feed.flush()
            except Exception as problem:
                why = str(problem) or type(problem).__name__
                log.error("%s: the last settlements could not be sent: %s", self._subscription.name, why)
        finally:
            if self._feed_task is not None:
                self._feed_task.cancel()
            if self._executor is not None:
                self._executor.shutdown()
