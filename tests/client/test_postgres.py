"""The same connection over PostgreSQL."""

from __future__ import annotations

import asyncio
import threading

import ackwise
from tests.patience import PATIENCE
from tests.server.running import Running


def test_connection_to_postgres_consumes_and_produces(pg_url: str) -> None:
    with ackwise.connect(pg_url) as queue:
        queue.push_many("in", range(20), partition="p")
        for batch in queue.batches("in", group="g", max=7, wait=0, stop_when_empty=True):
            with queue.transaction() as step:
                for delivery in batch:
                    step.ack(delivery).push("out", delivery.json())
        assert (queue.lag("in", "g"), queue.stats("out").messages) == (0, 20)


def test_async_connection_to_postgres_consumes(pg_url: str) -> None:
    async def work() -> list[int]:
        seen = []
        async with ackwise.connect_async(pg_url) as queue:
            await queue.push_many("q", range(5))
            async for delivery in queue.consume("q", wait=0, stop_when_empty=True):
                async with delivery:
                    seen.append(delivery.json())
        return seen

    assert asyncio.run(work()) == [0, 1, 2, 3, 4]


def test_servers_on_one_postgres_share_messages(pg_url: str) -> None:
    """Two servers over one database: what one is given the other hands out, also to a poll that waits there."""
    with Running(pg_url) as one, Running(pg_url) as two, ackwise.connect(one.url) as first:
        first.create_queue("q")
        found: list[int] = []

        def work() -> None:
            with ackwise.connect(two.url) as second, second.claim("q", max=9, wait=60) as batch:
                found.extend(d.json() for d in batch)

        consumer = threading.Thread(target=work)
        consumer.start()
        first.push_many("q", range(5))
        consumer.join(PATIENCE)
        assert (found, first.groups("q")[0].acked) == ([0, 1, 2, 3, 4], 5)
