"""Acks of many callers over HTTP go in few requests, and each caller hears its own verdict."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import ackwise
from ackwise.client.http_adapters.aio import AiohttpAdapter
from ackwise.client.http_adapters.reply import Reply
from ackwise.client.http_adapters.threads import HttpxAdapter
from ackwise.clock import ManualClock
from ackwise.core.commands import ByTransaction, Settlement
from ackwise.core.settlement import Outcome, Verdict
from tests.client.flaky import Flaky
from tests.patience import PATIENCE
from tests.server.running import Running

COUNT = 64


@pytest.fixture
def server(store_url: str, clock: ManualClock) -> Iterator[Running]:
    with Running(store_url, clock) as running:
        yield running


@pytest.fixture
def settles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One for each request that settles."""
    seen: list[str] = []
    threads, aio = HttpxAdapter.request, AiohttpAdapter.request

    def in_thread(self: HttpxAdapter, method: str, path: str, body: bytes, timeout: float) -> Reply:
        seen.extend([path] * (path == "/v1/settle"))
        return threads(self, method, path, body, timeout)

    async def in_task(self: AiohttpAdapter, method: str, path: str, body: bytes, timeout: float) -> Reply:
        seen.extend([path] * (path == "/v1/settle"))
        return await aio(self, method, path, body, timeout)

    monkeypatch.setattr(HttpxAdapter, "request", in_thread)
    monkeypatch.setattr(AiohttpAdapter, "request", in_task)
    return seen


def test_acks_of_concurrent_tasks_share_requests(server: Running, settles: list[str]) -> None:
    async def main() -> None:
        async with ackwise.connect_async(server.url) as queue:
            await queue.push_many("q", range(COUNT))
            deliveries = list(await queue.claim("q", max=COUNT))
            verdicts = await asyncio.gather(*(delivery.ack() for delivery in deliveries))
            assert verdicts == [Verdict.ACKED] * COUNT
            again = await asyncio.gather(*(delivery.ack() for delivery in deliveries[:3]))
            assert again == [Verdict.ALREADY] * 3

    asyncio.run(main())
    assert len(settles) <= 4


def test_acks_of_concurrent_threads_share_requests(server: Running, settles: list[str]) -> None:
    with ackwise.connect(server.url) as queue, ThreadPoolExecutor(32) as pool:
        queue.push_many("q", range(COUNT))
        deliveries = list(queue.claim("q", max=COUNT))
        assert list(pool.map(lambda one: one.ack(), deliveries)) == [Verdict.ACKED] * COUNT
        (group,) = queue.groups("q")
        assert (group.acked, group.lag) == (COUNT, 0)
    assert len(settles) < COUNT


def test_stale_one_is_refused_alone(server: Running, clock: ManualClock) -> None:
    async def main() -> None:
        async with ackwise.connect_async(server.url) as queue:
            await queue.push_many("q", range(4))
            late = list(await queue.claim("q", max=2, lease=1))
            good = list(await queue.claim("q", max=2))
            clock.advance(2)
            told = await asyncio.gather(*(one.ack() for one in (*late, *good)), return_exceptions=True)
            assert [type(one) for one in told] == [ackwise.errors.LeaseLost] * 2 + [Verdict] * 2

    asyncio.run(main())


def test_settlement_with_a_bad_id_fails_alone(server: Running) -> None:
    async def main() -> None:
        async with ackwise.connect_async(server.url) as queue:
            await queue.push_many("q", range(2))
            good = list(await queue.claim("q", max=2))
            calls = [queue.settle([("\ud800", "ack")]), *(delivery.ack() for delivery in good)]
            told = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(told[0], ackwise.errors.BadInput)
            assert told[1:] == [Verdict.ACKED] * 2

    asyncio.run(main())


@pytest.mark.parametrize("where", [0, COUNT // 2, COUNT - 1])
def test_malformed_settlement_costs_the_others_few_requests(server: Running, settles: list[str], where: int) -> None:
    async def main() -> None:
        async with ackwise.connect_async(server.url) as queue:
            await queue.push_many("q", range(COUNT - 1))
            calls: list[Awaitable[object]] = [delivery.ack() for delivery in await queue.claim("q", max=COUNT)]
            calls.insert(where, queue.settle([Settlement(selector=ByTransaction("p", ""), outcome=Outcome.ACK)]))
            told = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(told.pop(where), ackwise.errors.BadInput)
            assert told == [Verdict.ACKED] * (COUNT - 1)

    asyncio.run(main())
    assert len(settles) <= 1 + 2 * (COUNT - 1).bit_length()


def test_cancelled_caller_does_not_repeat_others_requests(server: Running) -> None:
    """The cancelled caller's request carries the others' acks, so their verdict is not `already`."""

    async def main() -> None:
        door = Flaky(server.address)
        async with asyncio.timeout(PATIENCE), ackwise.connect_async(door.url) as queue:
            await queue.push_many("q", range(4))
            deliveries = list(await queue.claim("q", max=4))
            first, second = threading.Event(), threading.Event()
            door.fail("/v1/settle", first, second)
            leading = asyncio.ensure_future(deliveries[0].ack())
            await until_sent(door, 1)
            cancelled = asyncio.ensure_future(deliveries[1].ack())
            waiting = asyncio.ensure_future(deliveries[2].ack())
            await asyncio.sleep(0)
            first.set()
            await leading
            await until_sent(door, 2)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            second.set()
            assert (cancelled.cancelled(), await waiting) == (True, Verdict.ACKED)
            assert door.count("/v1/settle") == 2
        door.down()

    asyncio.run(main())


def test_release_does_not_overtake_ack_of_cancelled_caller(server: Running) -> None:
    async def main() -> None:
        door = Flaky(server.address)
        async with asyncio.timeout(PATIENCE), ackwise.connect_async(door.url) as queue:
            await queue.push("q", 1)
            (delivery,) = await queue.claim("q")
            late = threading.Event()
            door.fail("/v1/settle", late)
            acking = asyncio.ensure_future(delivery.ack())
            await until_sent(door, 1)
            acking.cancel()
            await asyncio.wait([acking])
            releasing = asyncio.ensure_future(queue.settle([(delivery, "release")]))
            # Time for the release to be sent, if it would.
            await asyncio.sleep(0.05)
            assert door.count("/v1/settle") == 1
            late.set()
            (answer,) = await releasing
            assert answer.verdict is Verdict.ALREADY
        door.down()

    asyncio.run(main())


async def until_sent(door: Flaky, count: int) -> None:
    while door.count("/v1/settle") < count:
        await asyncio.sleep(0.002)
