"""Every sink of a store: kept with its queue, begun with the server, ended with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable

import aiohttp

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core.answers import QueueInfo
from ackwise.core.commands import ConfigureQueue
from ackwise.core.errors import UnknownQueue
from ackwise.dialects.pages import pages
from ackwise.dialects.pushpop import words
from ackwise.dialects.pushpop.sinks.posting import Sink
from ackwise.dialects.pushpop.sinks.targets import Target, may_post, noted, notes

log = logging.getLogger("ackwise.pushpop")

POST_WITHIN = 30.0
STOP_WITHIN = 5.0
LOOK_EVERY = 10.0
"""How often a server looks whether another one, on the same database, was given a sink."""


class Sinks:
    """Every sink of a store, from the server's start to its end. They are kept with their queues."""

    def __init__(self, broker: AsyncBroker, allowed: Collection[str] = ()) -> None:
        self.allowed = allowed
        self._broker = broker
        self._changing = asyncio.Lock()
        """One change at a time: of two that begin a sink each, one would be known to nobody."""
        self._running: dict[str, tuple[Sink, asyncio.Task[None]]] = {}
        self._refused: set[tuple[str, str]] = set()
        """Sinks of other servers that may not post from here, with their URLs: said once."""
        self._posts: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._http: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=POST_WITHIN), cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
        )
        await self._take_up()
        if not self._broker.store.local:
            self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """A post under way is left alone: its locks run out, unless the receiver acknowledges them."""
        async with self._changing:
            sinks = [task for _, task in self._running.values()]
            tasks = [*sinks, *self._posts, *([self._watching] if self._watching is not None else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # What sinks claimed and did not post is on its way back.
            await asyncio.gather(*self._posts, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    async def register(self, queue: str, target: Target) -> None:
        async with self._changing:
            await self._note(queue, target)
            self._begin(queue)

    async def unregister(self, queue: str) -> bool:
        """False when there was none."""
        async with self._changing:
            try:
                info = await self._broker.ask(q.GetQueue(queue=queue))
            except UnknownQueue:
                return False
            if noted(info) is None:
                return False
            await self._note(queue, None)
            return True

    async def _note(self, queue: str, target: Target | None) -> None:
        await self._broker.send(ConfigureQueue(queue=queue, policy={"notes": notes(target)}, create=words.POLICY))
        sink, task = self._running.pop(queue, (None, None))
        if sink is not None and task is not None:
            sink.stop()
            await asyncio.wait([task], timeout=STOP_WITHIN)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _take_up(self) -> None:
        async with self._changing:
            async for found in pages(self._broker, q.ListQueues(noted=True), _targets):
                for name, target in found:
                    if name not in self._running and self._may_post(name, target):
                        self._begin(name)

    def _may_post(self, queue: str, target: Target) -> bool:
        allowed = may_post(target.url, self.allowed)
        if not allowed and (queue, target.url) not in self._refused:
            self._refused.add((queue, target.url))
            log.warning("the sink of %s is not allowed to post to %s from here", queue, target.url)
        return allowed

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                await self._take_up()
            except Exception as problem:
                log.warning("looking for sinks of other servers will be tried again: %r", problem)

    def _begin(self, queue: str) -> None:
        assert self._http is not None
        sink = Sink(self._broker, self._http, queue, self.allowed, self._posts)
        task = asyncio.create_task(sink.run())
        self._running[queue] = sink, task
        task.add_done_callback(lambda _: self._forget(queue, sink))

    def _forget(self, queue: str, sink: Sink) -> None:
        if self._running.get(queue, (None,))[0] is sink:
            del self._running[queue]


def _targets(infos: Iterable[QueueInfo]) -> list[tuple[str, Target]]:
    """The queues among these that have a sink."""
    return [(info.name, target) for info in infos if (target := noted(info)) is not None]
