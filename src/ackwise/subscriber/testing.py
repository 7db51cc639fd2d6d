"""Tests of an app without a server, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any

from ackwise.client import AsyncConnection
from ackwise.client.payloads import new_message
from ackwise.client.rows import DeadLetters, GroupStats
from ackwise.core.limits import Seconds
from ackwise.core.messages import QUEUE_MODE
from ackwise.store.clock import ManualClock
from ackwise.subscriber.app import App
from ackwise.subscriber.feeds.broker import BrokerFeed, BrokerLink
from ackwise.subscriber.handling import Handling
from ackwise.subscriber.subscription import Subscription

MOST_ROUNDS = 1000
"""More deliveries in a row than any test means: a message goes round and round."""


class TestApp:
    """Usage::

        async with TestApp(app) as test:
            await test.publish("orders", {"id": 1})
            await test.deliver()
            assert await test.acked("orders") == 1

    Every handler is called as in production, on the same engine, but only when the test says `deliver`, and the time is
    what `advance` makes of it. With a `url` and the server's `clock` it speaks to a real server instead.
    """

    __test__ = False

    def __init__(self, app: App, *, url: str | None = None, clock: ManualClock | None = None) -> None:
        self.app, self._url = app, url
        self.clock = clock or ManualClock()
        self._kept = (app.url, app.clock)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._feeds: list[tuple[Subscription, BrokerFeed, Handling]] = []
        self._threads = ThreadPoolExecutor(thread_name_prefix="ackwise-test")

    async def __aenter__(self) -> TestApp:
        self.app.refuse_if_started()
        url = self._url
        if url is None:
            self._folder = tempfile.TemporaryDirectory(prefix="ackwise-test-")
            url = f"sqlite:///{self._folder.name}/test.db?durability=normal"
        self.app.url, self.app.clock = url, self.clock
        try:
            await self.app.connect()
            for said in self.app.subscriptions:
                # What only NATS knows is not tested here.
                subscription = replace(said, ephemeral=False, stream=None)
                feed = BrokerFeed(self.connection, subscription)
                await feed.open()
                self._feeds.append((subscription, feed, self.app.handling(subscription, self._threads)))
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
        """The engine itself, for whatever else a test wants to see."""
        link = self.app.link()
        assert isinstance(link, BrokerLink)
        return link.connection

    async def publish(
        self, queue: str, payload: object, *, headers: Mapping[str, str] | None = None, delay: Seconds | None = None
    ) -> str:
        """Anything at all: what no publisher would write as well."""
        if hasattr(payload, "model_dump_json"):
            payload = payload.model_dump(mode="json", by_alias=True)  # type: ignore[attr-defined]
        new_message(payload)
        receipt = await self.connection.push(queue, payload, headers=headers, delay=delay)
        return receipt.message_id

    async def deliver(self) -> int:
        """Hand out what is due until nothing is; how many deliveries that were."""
        total = 0
        for _ in range(MOST_ROUNDS):
            count = sum([await self._round(*one) for one in self._feeds])
            if not count:
                return total
            total += count
        raise AssertionError(f"{total} deliveries, and there is still more: is a message retried without delay?")

    async def _round(self, subscription: Subscription, feed: BrokerFeed, handle: Handling) -> int:
        handed = await feed.take(subscription.concurrency)
        await asyncio.gather(*(handle(one) for one in handed))
        await feed.flush()
        return len(handed)

    async def advance(self, seconds: float) -> int:
        """Move the clock, and deliver what has become due."""
        self.clock.advance(seconds)
        return await self.deliver()

    async def stats(self, queue: str, group: str | None = None) -> GroupStats:
        name = group or QUEUE_MODE
        return next(one for one in (await self.connection.stats(queue)).groups if one.group == name)

    async def acked(self, queue: str, group: str | None = None) -> int:
        return (await self.stats(queue, group)).acked

    async def pending(self, queue: str, group: str | None = None) -> int:
        """How many are not finished: never handed out, held, or waiting for another try."""
        return (await self.stats(queue, group)).lag

    async def dead_letters(self, queue: str | None = None, **which: Any) -> DeadLetters:
        return await self.connection.dead_letters(queue, **which)
