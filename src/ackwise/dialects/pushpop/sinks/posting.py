"""A sink at work: it claims under competing locks, posts, and settles by what the receiver answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Coroutine

import aiohttp

from ackwise.broker import AsyncBroker
from ackwise.broker.handing import runs
from ackwise.core import queries as q
from ackwise.core.answers import Handed
from ackwise.core.commands import ByKey, Claim, Settle, Settlement, giving_back
from ackwise.core.errors import AckwiseError, UnknownQueue
from ackwise.core.limits import MICROS
from ackwise.core.settlement import Outcome
from ackwise.dialects.cells import cells
from ackwise.dialects.http import encode
from ackwise.dialects.pushpop import words
from ackwise.dialects.pushpop.sinks.pace import Pace
from ackwise.dialects.pushpop.sinks.targets import Target, may_post, noted

log = logging.getLogger("ackwise.pushpop")

MOST_PER_POST = 100


def sink_id(queue: str) -> str:
    return f"{queue}-sink"


class Sink:
    """One queue's sink. What it may hold is counted in the store, so that a restart does not hold twice as much."""

    def __init__(
        self,
        broker: AsyncBroker,
        http: aiohttp.ClientSession,
        queue: str,
        allowed: Collection[str],
        posts: set[asyncio.Task[None]],
    ) -> None:
        """`posts` outlive the sink: one that is unregistered still hears what the receiver answers."""
        self._broker, self._http, self._queue, self._allowed, self._posts = broker, http, queue, allowed, posts
        self._pace = Pace()
        self._room = asyncio.Event()
        self._over: asyncio.Future[None] = broker.loop.create_future()
        self._out: set[str] = set()
        """Locks of posts that are not answered yet; some may have run out."""

    def stop(self) -> None:
        """Take nothing more: `run` ends when no claim of it is under way, and what that took is given back."""
        if not self._over.done():
            self._over.set_result(None)
        self._room.set()

    async def run(self) -> None:
        while not self._broker.draining and not self._over.done():
            try:
                target = await self._target()
                if target is None:
                    return
                await self._round(target)
            except Exception as problem:
                expected = isinstance(problem, AckwiseError)
                log.log(
                    logging.WARNING if expected else logging.ERROR,
                    "the sink of %s will try again: %s",
                    self._queue,
                    problem,
                    exc_info=not expected,
                )
                self._pace.empty()
                await asyncio.wait([self._over], timeout=self._pace.seconds)

    async def _target(self) -> Target | None:
        """Asked each time: somebody may have unregistered it, here or at another server."""
        try:
            target = noted(await self._broker.ask(q.GetQueue(queue=self._queue)))
        except UnknownQueue:
            return None
        return target if target is not None and may_post(target.url, self._allowed) else None

    async def _round(self, target: Target) -> None:
        if not self._over.done():
            self._room.clear()
        (depth,) = await self._broker.ask(q.ListDepths(queue=self._queue))
        mine = {lease.key for lease in depth.leases if lease.owner == sink_id(self._queue)} | self._out
        room = min(target.max_concurrency - len(mine), MOST_PER_POST)
        if room <= 0:
            await self._until_room()
            self._pace.full()
            return
        taken = await self._take(target, room)
        if not taken:
            self._pace.empty()
            return
        if self._over.done() or await self._target() != target:
            # Somebody changed it, here or at another server, while this one waited for an item.
            await self._give_back(*(handed for _, handed in taken))
            return
        self._pace.flowing()
        self._out |= {lock_id for lock_id, _ in taken}
        self._keep(self._post(target, taken))

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)

    async def _until_room(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pace.seconds):
                await self._room.wait()

    async def _take(self, target: Target, room: int) -> list[tuple[str, Handed]]:
        """Up to so many items, each under a lock of its own. For the first one it waits; a push ends the wait."""
        first = await self._claim(target, self._pace.seconds)
        if not first[1].claimed.grants:
            return []
        rest = [self._order(target) for _ in range(room - 1)]
        try:
            handed = await self._broker.claim_each([claim for _, claim in rest])
        except BaseException:
            self._keep(self._give_back(first[1]))
            raise
        claims = [(lock_id, answer) for (lock_id, _), answer in zip(rest, handed, strict=True)]
        return [first, *(claim for claim in claims if claim[1].claimed.grants)]

    async def _give_back(self, *taken: Handed) -> None:
        with contextlib.suppress(AckwiseError):
            await self._broker.send(giving_back(handed.claimed.lease_id for handed in taken))

    async def _claim(self, target: Target, wait: float) -> tuple[str, Handed]:
        lock_id, claim = self._order(target)
        return lock_id, await self._broker.claim(claim, wait, self._over)

    def _order(self, target: Target) -> tuple[str, Claim]:
        """A claim of one item under a lock of its own."""
        lock_id = words.new_lock_id()
        return lock_id, Claim(
            queue=self._queue,
            lease=target.lock_ttl_seconds * MICROS,
            exclusivity="none",
            order="relaxed",
            owner=sink_id(self._queue),
            key=lock_id,
        )

    async def _post(self, target: Target, taken: list[tuple[str, Handed]]) -> None:
        """200: done with all of it. 202: the receiver will acknowledge. Anything else: the locks run out."""
        try:
            status = await self._answer(target, b"[%b]" % b",".join(_spelled(*one) for one in taken))
            if status == 200:
                await self._acknowledge([lock_id for lock_id, _ in taken])
            elif status != 202:
                log.warning("%s answered the sink of %s with %s", target.url, self._queue, status)
        finally:
            self._out -= {lock_id for lock_id, _ in taken}
            self._room.set()

    async def _acknowledge(self, lock_ids: list[str]) -> None:
        keys = [ByKey(self._queue, lock_id) for lock_id in lock_ids]
        entries = [Settlement(selector=key, outcome=Outcome.ACK) for key in keys]
        try:
            await self._broker.send(Settle(entries=entries))
        except AckwiseError as problem:
            log.warning("the sink of %s could not acknowledge: %s", self._queue, problem)

    async def _answer(self, target: Target, body: bytes) -> int | str:
        headers = {"content-type": "application/json"}
        try:
            async with self._http.post(target.url, data=body, headers=headers, allow_redirects=False) as answer:
                return answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            return type(problem).__name__


def _spelled(lock_id: str, handed: Handed) -> bytes:
    (run,) = runs(handed)
    (text,) = cells(run).texts
    until = encode(words.seconds(handed.claimed.deadline))
    return b'{"item":%b,"priority":%d,"lock_id":"%b","lock_expires_at":%b}' % (
        text,
        run.grant.priority,
        lock_id.encode(),
        until,
    )
