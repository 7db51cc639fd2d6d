"""The client for asyncio: it is the source of the other one, so only what differs is shown again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import ackwise
from ackwise.amps import AsyncClient, Message
from tests.amps.orders import ORDERS
from tests.amps.tap import Tap


def run(uri: str, work: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        client = AsyncClient("async")
        async with await (await client.connect(uri)).logon():
            await work(client)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_handlers_may_be_coroutines(uri: str, orders: ackwise.Connection) -> None:
    async def work(client: AsyncClient) -> None:
        client.set_auto_ack(True).set_ack_batch_size(10)
        done: asyncio.Queue[bytes] = asyncio.Queue()

        async def handle(message: Message) -> None:
            await asyncio.sleep(0)
            done.put_nowait(message.data)

        await client.subscribe(ORDERS, handle)
        for text in ("a", "b"):
            await client.publish(ORDERS, text)
        assert [await done.get(), await done.get()] == [b"a", b"b"]

    run(uri, work)
    assert [group.lag for group in orders.groups("orders")] == [0], "closing sends what was gathered"


def test_async_subscription_is_iterated_in_order(uri: str, orders: ackwise.Connection) -> None:
    async def work(client: AsyncClient) -> None:
        client.set_auto_ack(True)
        for number in range(3):
            await client.publish(ORDERS, {"number": number})
        found = []
        async for message in await client.subscribe(ORDERS, max_backlog=5):
            found.append(message.json()["number"])
            if len(found) == 3:
                await client.ack_message(message)
                break
        assert found == [0, 1, 2]

    run(uri, work)
    assert [group.lag for group in orders.groups("orders")] == [0]


def test_subscription_is_restored_after_a_cut(tap: Tap) -> None:
    async def work(client: AsyncClient) -> None:
        client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0)
        seen: asyncio.Queue[Message] = asyncio.Queue()
        subscription = await client.subscribe(ORDERS, seen.put_nowait)
        await client.publish(ORDERS, "a")
        first = await seen.get()
        tap.cut()
        again = await seen.get()
        assert (again.data, again.sub_id) == (first.data, subscription.sub_id)
        assert again.bookmark != first.bookmark
        assert client.dropped_acks == 1

    run(tap.uri, work)


def test_ack_timeout_flushes_a_partial_batch(tap: Tap) -> None:
    async def work(client: AsyncClient) -> None:
        client.set_auto_ack(True).set_ack_batch_size(100).set_ack_timeout(0.01)
        await client.subscribe(ORDERS, lambda message: None)
        await client.publish(ORDERS, "a")
        await asyncio.to_thread(tap.until, lambda: any(one.command == "ack" for one in tap.said))

    run(tap.uri, work)
