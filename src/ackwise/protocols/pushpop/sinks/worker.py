"""Worker of one sink: claims items, posts them and settles them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Coroutine

import aiohttp

from ackwise.broker import AsyncBroker
from ackwise.broker.deliveries import segment_slices
from ackwise.core import queries as q
from ackwise.core.answers import Handed
from ackwise.core.commands import ByKey, Claim, Settle, Settlement, release_command
from ackwise.core.errors import AckwiseError, UnknownQueue
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from ackwise.protocols.http_response import encode
from ackwise.protocols.json_columns import message_columns
from ackwise.protocols.post_targets import host_of, may_post
from ackwise.protocols.pushpop import vocabulary
from ackwise.protocols.pushpop.sinks.targets import SinkTarget, stored_target

log = logging.getLogger("ackwise.pushpop")

MOST_PER_POST = 100


def sink_id(queue: str) -> str:
    return f"{queue}-sink"


class SinkWorker:
    """Worker of one queue's sink. Counts its locks in the store, so that a restart does not double them."""

    def __init__(
        self,
        broker: AsyncBroker,
        http: aiohttp.ClientSession,
        queue: str,
        allowed: Collection[str],
        posts: set[asyncio.Task[None]],
    ) -> None:
        """`posts` are running posts. They outlive the worker: after unregistration their answers still count."""
        self._broker, self._http, self._queue, self._allowed, self._posts = broker, http, queue, allowed, posts
        self._pace = PostPace()
        self._room = asyncio.Event()
        self._over: asyncio.Future[None] = broker.loop.create_future()
        self._out: set[str] = set()
        """Locks of unanswered posts. Some may have expired."""

    def stop(self) -> None:
        """Ends `run` after its current claim, whose items the worker releases."""
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

    async def _target(self) -> SinkTarget | None:
        """Reads the target each time: this or another server may have changed it."""
        try:
            target = stored_target(await self._broker.ask(q.GetQueue(queue=self._queue)))
        except UnknownQueue:
            return None
        return target if target is not None and may_post(target.url, self._allowed) else None

    async def _round(self, target: SinkTarget) -> None:
        if not self._over.done():
            self._room.clear()
        (depth,) = await self._broker.ask(q.ListDepths(queue=self._queue))
        own_locks = {lease.key for lease in depth.leases if lease.owner == sink_id(self._queue)} | self._out
        room = min(target.max_concurrency - len(own_locks), MOST_PER_POST)
        if room <= 0:
            await self._until_room()
            self._pace.full()
            return
        taken = await self._take(target, room)
        if not taken:
            self._pace.empty()
            return
        if self._over.done() or await self._target() != target:
            # The target changed while the claim waited for an item.
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

    async def _take(self, target: SinkTarget, room: int) -> list[tuple[str, Handed]]:
        """Claims up to `room` items, each under its own lock. Waits for the first item."""
        first = await self._claim(target, self._pace.seconds)
        if not first[1].claimed.grants:
            return []
        rest = [self._new_claim(target) for _ in range(room - 1)]
        try:
            handed = await self._broker.claim_each([claim for _, claim in rest])
        except BaseException:
            self._keep(self._give_back(first[1]))
            raise
        claims = [(lock_id, answer) for (lock_id, _), answer in zip(rest, handed, strict=True)]
        return [first, *(claim for claim in claims if claim[1].claimed.grants)]

    async def _give_back(self, *taken: Handed) -> None:
        with contextlib.suppress(AckwiseError):
            await self._broker.send(release_command(handed.claimed.lease_id for handed in taken))

    async def _claim(self, target: SinkTarget, wait: float) -> tuple[str, Handed]:
        lock_id, claim = self._new_claim(target)
        return lock_id, await self._broker.claim(claim, wait, self._over)

    def _new_claim(self, target: SinkTarget) -> tuple[str, Claim]:
        """A claim of one item under a lock of its own."""
        lock_id = vocabulary.new_lock_id()
        return lock_id, Claim(
            queue=self._queue,
            lease=target.lock_ttl_seconds * MICROS,
            exclusivity="none",
            order="relaxed",
            owner=sink_id(self._queue),
            key=lock_id,
        )

    async def _post(self, target: SinkTarget, taken: list[tuple[str, Handed]]) -> None:
        """Posts items. After 200 acknowledges them. After 202 the receiver does. Else their locks expire."""
        try:
            status = await self._answer(target, b"[%b]" % b",".join(map(self._item_json, taken)))
            if status == 200:
                await self._acknowledge([lock_id for lock_id, _ in taken])
            elif status != 202:
                log.warning("%s answered the sink of %s with %s", host_of(target.url), self._queue, status)
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

    def _item_json(self, taken: tuple[str, Handed]) -> bytes:
        lock_id, handed = taken
        return _item_json(lock_id, handed, self._broker.wall_of(handed.claimed.deadline))

    async def _answer(self, target: SinkTarget, body: bytes) -> int | str:
        headers = {"content-type": "application/json"}
        try:
            async with self._http.post(target.url, data=body, headers=headers, allow_redirects=False) as answer:
                return answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            return type(problem).__name__


def _item_json(lock_id: str, handed: Handed, expires_at: int) -> bytes:
    (run,) = segment_slices(handed)
    (text,) = message_columns(run).texts
    until = encode(vocabulary.seconds(expires_at))
    return b'{"item":%b,"priority":%d,"lock_id":"%b","lock_expires_at":%b}' % (
        text,
        run.grant.priority,
        lock_id.encode(),
        until,
    )


FLOWING = 1.0
LONGEST_EMPTY = 60.0
LONGEST_FULL = 4.0


class PostPace:
    """Waiting time between claims: a second while items arrive, doubled while the queue is empty or the sink full."""

    def __init__(self) -> None:
        self.seconds = FLOWING

    def flowing(self) -> None:
        self.seconds = FLOWING

    def empty(self) -> None:
        self.seconds = min(2 * self.seconds, LONGEST_EMPTY)

    def full(self) -> None:
        self.seconds = min(2 * self.seconds, LONGEST_FULL)
