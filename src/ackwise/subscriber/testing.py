"""`TestApp`: runs an app's handlers in tests, step by step."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any

from ackwise.client import AsyncConnection
from ackwise.client.payloads import new_message
from ackwise.client.results import DeadLetters, GroupStats
from ackwise.clock import ManualClock
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.validation import Seconds
from ackwise.subscriber.app import App
from ackwise.subscriber.feeds.broker_feed import BrokerFeed, BrokerLink
from ackwise.subscriber.handler_runner import HandlerRunner
from ackwise.subscriber.handler_threads import HandlerThreads
from ackwise.subscriber.subscription import Subscription

MOST_ROUNDS = 1000
"""Rounds of `deliver` after which a message is assumed to be retried for ever."""


class TestApp:
    """Runs an app in a test, on a real store, with a manual clock.

    Usage::

        async with TestApp(app) as test:
            await test.publish("orders", {"id": 1})
            await test.deliver()
            assert await test.acked("orders") == 1

    Handlers run as in production, but only when the test calls `deliver`. Time passes only with `advance`. With a
    `url` and the server's `clock` the app uses a real server instead of a temporary store.
    """

    __test__ = False

    def __init__(self, app: App, *, url: str | None = None, clock: ManualClock | None = None) -> None:
        self.app, self._url = app, url
        self.clock = clock or ManualClock()
        self._kept = (app.url, app.clock)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._feeds: list[tuple[Subscription, BrokerFeed, HandlerRunner]] = []
        self._threads = HandlerThreads(32, "ackwise-test")

    async def __aenter__(self) -> TestApp:
        self.app.check_not_started()
        url = self._url
        if url is None:
            self._folder = tempfile.TemporaryDirectory(prefix="ackwise-test-")
            url = f"sqlite:///{self._folder.name}/test.db?durability=normal"
        self.app.url, self.app.clock = url, self.clock
        try:
            await self.app.connect()
            for declared in self.app.subscriptions:
                # Options for NATS do not apply to the test's store.
                subscription = replace(declared, ephemeral=False, stream=None)
                feed = BrokerFeed(self.connection, subscription)
                await feed.open()
                self._feeds.append((subscription, feed, self.app.handler_runner(subscription, self._threads)))
        except BaseException:
            await self._restore()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._restore()

    async def _restore(self) -> None:
        try:
            await self.app.stop(grace=0)
        finally:
            self.app.url, self.app.clock = self._kept
            self._threads.shutdown()
            if self._folder is not None:
                self._folder.cleanup()

    @property
    def connection(self) -> AsyncConnection:
        """The app's connection, for further checks."""
        link = self.app.link()
        assert isinstance(link, BrokerLink)
        return link.connection

    async def publish(
        self, queue: str, payload: object, *, headers: Mapping[str, str] | None = None, delay: Seconds | None = None
    ) -> str:
        """Publish any payload, also one that the app's publishers would refuse. Returns the message id."""
        if hasattr(payload, "model_dump_json"):
            payload = payload.model_dump(mode="json", by_alias=True)  # type: ignore[attr-defined]
        new_message(payload)
        receipt = await self.connection.push(queue, payload, headers=headers, delay=delay)
        return receipt.message_id

    async def deliver(self) -> int:
        """Deliver messages until none is due. Returns the number of deliveries."""
        total = 0
        for _ in range(MOST_ROUNDS):
            count = sum([await self._round(*feed) for feed in self._feeds])
            if not count:
                return total
            total += count
        raise AssertionError(f"{total} deliveries, and more are due: is a message retried without delay?")

    async def _round(self, subscription: Subscription, feed: BrokerFeed, handle: HandlerRunner) -> int:
        deliveries = await feed.take(subscription.concurrency)
        await asyncio.gather(*(handle(delivery) for delivery in deliveries))
        await feed.flush()
        return len(deliveries)

    async def advance(self, seconds: float) -> int:
        """Move the clock and deliver the messages that became due. Returns the number of deliveries."""
        self.clock.advance(seconds)
        return await self.deliver()

    async def stats(self, queue: str, group: str | None = None) -> GroupStats[datetime]:
        """Counts of a group. Without a group, of the queue's default group."""
        name = group or QUEUE_MODE
        return next(row for row in (await self.connection.stats(queue)).groups if row.group == name)

    async def acked(self, queue: str, group: str | None = None) -> int:
        """Number of acked messages."""
        return (await self.stats(queue, group)).acked

    async def pending(self, queue: str, group: str | None = None) -> int:
        """Number of unfinished messages: unread, held, or waiting for a retry."""
        return (await self.stats(queue, group)).lag

    async def dead_letters(self, queue: str | None = None, **which: Any) -> DeadLetters:
        """Dead letters. The arguments are those of `Connection.dead_letters`."""
        return await self.connection.dead_letters(queue, **which)
