"""`GET /queue…`: what waits, who holds it until when, and how many locks ran out. Looking changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.broker.handing import hand_over, runs
from ackwise.core import queries as q
from ackwise.core.answers import Claimed, Grant
from ackwise.core.errors import UnknownQueue
from ackwise.core.messages import DEFAULT_PARTITION, QUEUE_MODE
from ackwise.dialects.cells import cells
from ackwise.dialects.http import Answer, Call, Route, answer, encode
from ackwise.dialects.pages import ROWS, array, pages, streamed
from ackwise.dialects.pushpop import words
from ackwise.dialects.pushpop.asking import number, option


def routes(broker: AsyncBroker) -> list[Route]:
    looks = Looks(broker)
    return [
        Route("GET", "/queue", looks.queues),
        Route("GET", "/queue/{queue}", looks.queue),
        Route("GET", "/queue/{queue}/metadata", looks.metadata),
    ]


class Looks:
    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker

    async def queues(self, call: Call) -> Answer:
        """All queues that PushPop can name, by name. The list begins behind `after` and has at most `limit` queues."""
        query = q.ListDepths(after=option(call, "after") or "")
        limit = max(1, number(call, "limit", 1)) if option(call, "limit") is not None else None
        left = limit

        def shown(depths: list[q.Depth]) -> bytes:
            nonlocal left
            named = [depth for depth in depths if words.is_queue_id(depth.queue)][:left]
            left = None if left is None else left - len(named)
            return b",".join([encode(self._shown(depth)) for depth in named])

        async def found() -> AsyncIterator[bytes]:
            async for piece in pages(self._broker, query, shown, rows=min(ROWS, limit or ROWS)):
                yield piece
                if left == 0:
                    return

        return await streamed(call, array(found(), b'{"queues":[', lambda: b"]}"))

    async def queue(self, call: Call) -> Answer:
        return answer(self._shown(await self._depth(words.queue_id(call))))

    async def metadata(self, call: Call) -> Answer:
        """The seed's state: counts by priority and, while there is one, the lock with what it holds."""
        depth = await self._depth(words.queue_id(call))
        shown: dict[str, Any] = {str(priority): count for priority, count in depth.waiting.items()}
        locks = [await self._lock(depth.queue, lease) for lease in depth.leases]
        if locks:
            shown["_active_lock"] = locks[0]
        if len(locks) > 1:
            shown["_active_locks"] = locks
        return answer(shown)

    async def _depth(self, queue: str) -> q.Depth:
        """A queue that nobody has pushed to is empty."""
        try:
            (depth,) = await self._broker.ask(q.ListDepths(queue=queue))
        except UnknownQueue:
            return q.Depth(queue, {}, [], 0)
        assert isinstance(depth, q.Depth)
        return depth

    def _shown(self, depth: q.Depth) -> dict[str, Any]:
        lease = depth.leases[0] if depth.leases else None
        now = self._broker.now()
        return {
            "queue_id": depth.queue,
            "depth": {str(priority): count for priority, count in depth.waiting.items()},
            "lock": None
            if lease is None
            else {
                "lock_id": lease.key or lease.lease_id,
                "expires_at": words.seconds(lease.deadline),
                "seconds_left": words.seconds(max(0, lease.deadline - now)),
            },
            "expired_locks": depth.expired_leases,
        }

    async def _lock(self, queue: str, lease: q.HeldLease) -> dict[str, Any]:
        grants = [Grant(queue, DEFAULT_PARTITION, "", lane, prio, lo, hi, 0, 0) for lane, prio, lo, hi in lease.held]
        handed = await self._broker.in_thread(hand_over, self._broker.store, Claimed(QUEUE_MODE, grants))
        items = [
            {"item": msgspec.Raw(text), "priority": run.grant.priority}
            for run in runs(handed)
            for text in cells(run).texts
        ]
        return {
            "lock_id": lease.key or lease.lease_id,
            "items_with_priority": items,
            "expires_at": words.seconds(lease.deadline),
            "created_at": words.seconds(lease.made_at),
        }
