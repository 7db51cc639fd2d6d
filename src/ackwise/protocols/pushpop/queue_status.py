"""`GET /queue…`: lists queues, their depth by priority, and their locks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.broker.deliveries import deliver, segment_slices
from ackwise.core import queries as q
from ackwise.core.answers import Claimed, Grant
from ackwise.core.errors import UnknownQueue
from ackwise.core.messages import DEFAULT_PARTITION, QUEUE_MODE
from ackwise.core.rows import Depth, HeldLease
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer, encode
from ackwise.protocols.json_columns import message_columns
from ackwise.protocols.pushpop import vocabulary
from ackwise.protocols.pushpop.vocabulary import number, option
from ackwise.protocols.streamed_lists import ROWS, array, pages, streamed


def routes(broker: AsyncBroker) -> list[Route]:
    status = QueueStatus(broker)
    return [
        Route("GET", "/queue", status.queues),
        Route("GET", "/queue/{queue}", status.queue),
        Route("GET", "/queue/{queue}/metadata", status.metadata),
    ]


class QueueStatus:
    """Handlers of the status routes."""

    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker

    async def queues(self, call: Call) -> Answer:
        """Lists queues whose names are valid queue ids, sorted, after `after` and at most `limit`."""
        query = q.ListDepths(after=option(call, "after") or "")
        limit = max(1, number(call, "limit", 1)) if option(call, "limit") is not None else None
        left = limit

        def write_page(depths: list[Depth]) -> bytes:
            nonlocal left
            valid = [depth for depth in depths if vocabulary.is_queue_id(depth.queue)][:left]
            left = None if left is None else left - len(valid)
            return b",".join([encode(self._queue_fields(depth)) for depth in valid])

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in pages(self._broker, query, write_page, rows=min(ROWS, limit or ROWS)):
                yield piece
                if left == 0:
                    return

        return await streamed(call, array(pieces(), b'{"queues":[', lambda: b"]}"))

    async def queue(self, call: Call) -> Answer:
        return answer(self._queue_fields(await self._depth(vocabulary.queue_id(call))))

    async def metadata(self, call: Call) -> Answer:
        """Counts by priority and, if the queue is locked, the locks with their items. The seed has this form."""
        depth = await self._depth(vocabulary.queue_id(call))
        fields: dict[str, Any] = {str(priority): count for priority, count in depth.waiting.items()}
        locks = [await self._lock(depth.queue, lease) for lease in depth.leases]
        if locks:
            fields["_active_lock"] = locks[0]
        if len(locks) > 1:
            fields["_active_locks"] = locks
        return answer(fields)

    async def _depth(self, queue: str) -> Depth:
        """Depth of a queue. A queue that does not exist is empty."""
        try:
            (depth,) = await self._broker.ask(q.ListDepths(queue=queue))
        except UnknownQueue:
            return Depth(queue, {}, [], 0)
        assert isinstance(depth, Depth)
        return depth

    def _queue_fields(self, depth: Depth) -> dict[str, Any]:
        lease = depth.leases[0] if depth.leases else None
        now = self._broker.wall()
        return {
            "queue_id": depth.queue,
            "depth": {str(priority): count for priority, count in depth.waiting.items()},
            "lock": None
            if lease is None
            else {
                "lock_id": lease.key or lease.lease_id,
                "expires_at": vocabulary.seconds(lease.deadline),
                "seconds_left": vocabulary.seconds(max(0, lease.deadline - now)),
            },
            "expired_locks": depth.expired_leases,
        }

    async def _lock(self, queue: str, lease: HeldLease) -> dict[str, Any]:
        grants = [Grant(queue, DEFAULT_PARTITION, "", lane, prio, lo, hi, 0, 0) for lane, prio, lo, hi in lease.held]
        handed = await self._broker.in_thread(deliver, self._broker.store, Claimed(QUEUE_MODE, grants))
        items = [
            {"item": msgspec.Raw(text), "priority": run.grant.priority}
            for run in segment_slices(handed)
            for text in message_columns(run).texts
        ]
        return {
            "lock_id": lease.key or lease.lease_id,
            "items_with_priority": items,
            "expires_at": vocabulary.seconds(lease.deadline),
            "created_at": vocabulary.seconds(lease.made_at),
        }
