"""The same connection over PostgreSQL."""

from __future__ import annotations

import asyncio

import ackwise


def test_from_threads(pg_url: str) -> None:
    with ackwise.connect(pg_url) as queue:
        queue.push_many("in", range(20), partition="p")
        for batch in queue.batches("in", group="g", max=7, wait=0, stop_when_empty=True):
            with queue.transaction() as step:
                for delivery in batch:
                    step.ack(delivery).push("out", delivery.json())
        assert (queue.lag("in", "g"), queue.stats("out").messages) == (0, 20)


def test_from_asyncio(pg_url: str) -> None:
    async def work() -> list[int]:
        seen = []
        async with ackwise.connect_async(pg_url) as queue:
            await queue.push_many("q", range(5))
            async for delivery in queue.consume("q", wait=0, stop_when_empty=True):
                async with delivery:
                    seen.append(delivery.json())
        return seen

    assert asyncio.run(work()) == [0, 1, 2, 3, 4]
