"""Supervisor of sinks: starts and stops them, and serves the routes that register them."""

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
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.post_targets import host_of, may_post
from ackwise.protocols.pushpop import route_docs, vocabulary
from ackwise.protocols.pushpop.sinks import targets
from ackwise.protocols.pushpop.sinks.targets import SinkTarget, notes, stored_target
from ackwise.protocols.pushpop.sinks.worker import SinkWorker, sink_id
from ackwise.protocols.pushpop.vocabulary import read_object
from ackwise.protocols.streamed_lists import pages

log = logging.getLogger("ackwise.pushpop")

POST_WITHIN = 30.0
STOP_WITHIN = 5.0
LOOK_EVERY = 10.0
"""Seconds between two searches for sinks that another server on the same database has registered."""


class Sinks:
    """All sinks of a store while the server runs. Their targets are stored with their queues."""

    def __init__(self, broker: AsyncBroker, allowed: Collection[str] = ()) -> None:
        self.allowed = allowed
        self._broker = broker
        self._changing = asyncio.Lock()
        """Held during a change, so that two changes cannot both start a sink for one queue."""
        self._running: dict[str, tuple[SinkWorker, asyncio.Task[None]]] = {}
        self._refused: set[tuple[str, str]] = set()
        """(queue, URL) of sinks whose host this server does not allow. Each is logged once."""
        self._posts: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._http: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=POST_WITHIN), cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
        )
        await self._start_registered()
        if not self._broker.store.traits.local:
            self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Stops all sinks. Locks of running posts expire unless the receiver acknowledges them."""
        async with self._changing:
            sinks = [task for _, task in self._running.values()]
            tasks = [*sinks, *self._posts, *([self._watching] if self._watching is not None else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # Cancelled sinks release what they claimed and did not post.
            await asyncio.gather(*self._posts, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    async def register(self, queue: str, target: SinkTarget) -> None:
        async with self._changing:
            await self._store_target(queue, target)
            self._start_worker(queue)

    async def unregister(self, queue: str) -> bool:
        """Removes the sink of a queue. False if the queue has none."""
        async with self._changing:
            try:
                info = await self._broker.ask(q.GetQueue(queue=queue))
            except UnknownQueue:
                return False
            if stored_target(info) is None:
                return False
            await self._store_target(queue, None)
            return True

    async def _store_target(self, queue: str, target: SinkTarget | None) -> None:
        """Stores or removes the target and stops the queue's worker."""
        await self._broker.send(ConfigureQueue(queue=queue, policy={"notes": notes(target)}, create=vocabulary.POLICY))
        sink, task = self._running.pop(queue, (None, None))
        if sink is not None and task is not None:
            sink.stop()
            await asyncio.wait([task], timeout=STOP_WITHIN)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _start_registered(self) -> None:
        """Starts workers for registered sinks that do not run here yet."""
        async with self._changing:
            async for registered in pages(self._broker, q.ListQueues(noted=True), _targets):
                for name, target in registered:
                    if name not in self._running and self._may_post(name, target):
                        self._start_worker(name)

    def _may_post(self, queue: str, target: SinkTarget) -> bool:
        allowed = may_post(target.url, self.allowed)
        if not allowed and (queue, target.url) not in self._refused:
            self._refused.add((queue, target.url))
            log.warning("the sink of %s may not post to %s; see --pushpop-sink-host", queue, host_of(target.url))
        return allowed

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                await self._start_registered()
            except Exception as problem:
                log.warning("could not look for sinks of other servers, will retry: %r", problem)

    def _start_worker(self, queue: str) -> None:
        assert self._http is not None
        sink = SinkWorker(self._broker, self._http, queue, self.allowed, self._posts)
        task = asyncio.create_task(sink.run())
        self._running[queue] = sink, task
        task.add_done_callback(lambda _: self._forget(queue, sink))

    def _forget(self, queue: str, sink: SinkWorker) -> None:
        if self._running.get(queue, (None,))[0] is sink:
            del self._running[queue]


def _targets(infos: Iterable[QueueInfo]) -> list[tuple[str, SinkTarget]]:
    """The queues among these that have a sink."""
    return [(info.name, target) for info in infos if (target := stored_target(info)) is not None]


def routes(sinks: Sinks) -> list[Route]:
    async def register(call: Call) -> Answer:
        """Registers the sink of a queue and replaces an earlier one."""
        queue = vocabulary.queue_id(call)
        target = targets.read(await read_object(call), sinks.allowed)
        await sinks.register(queue, target)
        message = f"Items of queue {queue} are posted to {target.url}"
        return answer({"success": True, "message": message, "sink_id": sink_id(queue)})

    async def unregister(call: Call) -> Answer:
        queue = vocabulary.queue_id(call)
        removed = await sinks.unregister(queue)
        message = f"The sink of queue {queue} is removed" if removed else f"Queue {queue} has no sink"
        return answer({"success": True, "message": message, "sink_id": sink_id(queue)})

    return [
        Route("POST", "/queue/{queue}/sink/http/register", register, doc=route_docs.register(SinkTarget)),
        Route("POST", "/queue/{queue}/sink/http/unregister", unregister, doc=route_docs.UNREGISTER),
    ]
