"""The same verbs from asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import ackwise
from ackwise import AsyncConnection, Reject, Retry, errors
from ackwise.clock import ManualClock

Job = Callable[[AsyncConnection], Awaitable[None]]


@pytest.fixture
def run(url: str, clock: ManualClock) -> Callable[[Job], None]:
    async def within(job: Job) -> None:
        async with asyncio.timeout(60):
            async with ackwise.connect_async(url, clock=clock) as queue:
                await job(queue)

    return lambda job: asyncio.run(within(job))


def test_async_delivery_block_settles_by_its_end(run: Callable[[Job], None]) -> None:
    async def job(queue: AsyncConnection) -> None:
        await queue.push_many("q", range(4))
        done, wrong, retried, rejected = await queue.claim("q", max=4)
        async with done:
            pass
        with pytest.raises(ValueError, match="wrong"):
            async with wrong:
                raise ValueError("wrong")
        async with retried:
            raise Retry(error="again")
        async with rejected:
            raise Reject("bad")
        (stats,) = await queue.groups("q")
        assert (stats.acked, stats.held, stats.dead) == (1, 2, 1)

    run(job)


def test_cancelled_task_gives_its_message_back_unspent(run: Callable[[Job], None]) -> None:
    async def job(queue: AsyncConnection) -> None:
        await queue.push("q", 1)
        inside = asyncio.Event()

        async def work() -> None:
            async with (await queue.claim("q"))[0]:
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (again,) = await queue.claim("q")
        assert (again.attempt, again.failures) == (2, 0)

    run(job)


def test_batches_and_transactions(run: Callable[[Job], None]) -> None:
    async def job(queue: AsyncConnection) -> None:
        await queue.push_many("q", range(25))
        count = 0
        async for batch in queue.batches("q", max=10, wait=0, stop_when_empty=True):
            async with queue.transaction() as step:
                for delivery in batch:
                    step.ack(delivery).push("out", delivery.json())
            count += len(batch)
        assert (count, (await queue.stats("out")).messages, await queue.leases()) == (25, 25, [])
        async with await queue.claim("out", max=25) as batch:
            assert len(batch) == 25
        assert (await queue.groups("out"))[0].acked == 25

    run(job)


def test_consumer_wakes_for_a_push(run: Callable[[Job], None]) -> None:
    async def job(queue: AsyncConnection) -> None:
        await queue.create_queue("q")
        seen: list[int] = []

        async def work() -> None:
            async for delivery in queue.consume("q", wait=30):
                async with delivery:
                    seen.append(delivery.json())
                if len(seen) == 3:
                    return

        task = asyncio.create_task(work())
        for number in range(3):
            await queue.push("q", number)
        await task
        assert seen == [0, 1, 2]

    run(job)


def test_leaving_a_loop_gives_the_rest_back(run: Callable[[Job], None]) -> None:
    async def job(queue: AsyncConnection) -> None:
        await queue.push_many("q", range(5))
        deliveries = queue.consume("q", wait=1)
        assert (await anext(deliveries)).json() == 0
        await deliveries.aclose()
        assert [d.json() for d in await queue.claim("q", max=9)] == [1, 2, 3, 4]

    run(job)


def test_refusals_are_raised(run: Callable[[Job], None], clock: ManualClock) -> None:
    async def job(queue: AsyncConnection) -> None:
        await queue.push("q", 1)
        (delivery,) = await queue.claim("q", lease=5)
        clock.advance(5)
        with pytest.raises(errors.LeaseLost):
            await delivery.ack()
        with pytest.raises(errors.UnknownQueue):
            await queue.claim("nowhere")

    run(job)


def test_drain_releases_unspent(run: Callable[[Job], None]) -> None:
    async def job(queue: AsyncConnection) -> None:
        await queue.push_many("q", range(3))
        await queue.claim("q", max=2)
        assert await queue.drain() == 2
        assert (await queue.claim("q")).empty == "draining"

    run(job)
