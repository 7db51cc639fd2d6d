"""Whatever an async handler does with cancellations, its worker goes on when it should, and ends when it should."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from ackwise import errors
from ackwise.clock import ManualClock
from ackwise.fluent import AsyncClient, Message
from tests.patience import PATIENCE


async def cancelled_from_inside() -> None:
    """After a failed task group, Python 3.11 leaves the task marked as cancelled without a caller's intent."""

    async def fail() -> None:
        raise ValueError("in a group")

    with suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
    inner = asyncio.ensure_future(asyncio.sleep(60))
    inner.cancel()
    await inner


async def counted(client: AsyncClient) -> tuple[int, int, int]:
    (row,) = await client.connection.groups("orders")
    return row.acked, row.dead, row.leases


@pytest.mark.parametrize("workers", [1, 2])
def test_cancellation_after_failed_task_group_is_failure(url: str, clock: ManualClock, workers: int) -> None:
    seen: list[int] = []

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:
            await client.push("orders", None, [{"data": number} for number in range(6)])

            async def handle(message: Message) -> None:
                seen.append(message.data)
                if message.data < 2:
                    await cancelled_from_inside()
                await client.ack(message)

            queue = client.queue("orders").group("g").config(retry_limit=2).concurrency(workers)
            await queue.limit(8).consume(handle)
            assert (sorted(seen), await counted(client)) == ([0, 0, 1, 1, 2, 3, 4, 5], (4, 2, 0))

    asyncio.run(job())


def test_callback_cancelled_from_inside_changes_no_settlement(url: str, clock: ManualClock) -> None:
    told: list[tuple[str, int]] = []

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:
            await client.push("orders", None, [{"data": number} for number in range(4)])

            async def handle(message: Message) -> None:
                await client.ack(message)
                if message.data % 2:
                    raise ValueError("odd")

            async def done(message: Message) -> None:
                told.append(("done", message.data))
                await cancelled_from_inside()

            async def failed(message: Message, error: Exception) -> None:
                told.append((str(error), message.data))
                await cancelled_from_inside()

            await client.queue("orders").group("g").limit(4).consume(handle).on_success(done).on_error(failed)
            assert await counted(client) == (4, 0, 0)

    asyncio.run(job())
    assert told == [("done", 0), ("odd", 1), ("done", 2), ("odd", 3)]


def test_lost_lease_callback_cancelled_from_inside_is_survived(url: str, clock: ManualClock) -> None:
    told: list[Any] = []

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:
            await client.push("orders", None, {"data": 1})

            async def handle(message: Message) -> None:
                if message.attempt == 1:
                    clock.advance(31)
                    await asyncio.Event().wait()
                await client.ack(message)

            async def failed(message: Message, error: Exception) -> None:
                told.append(type(error))
                await cancelled_from_inside()

            queue = client.queue("orders").group("g").renew_lease(True, 0.005).limit(2)
            await queue.consume(handle).on_error(failed)
            assert (told, await counted(client)) == ([errors.LeaseLost], (1, 0, 0))

    asyncio.run(job())


@pytest.mark.parametrize("how", ["cancelled", "another fails"])
def test_handler_swallowing_cancellation_still_ends_worker(
    url: str, clock: ManualClock, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:
            await client.push("orders", None, [{"data": number} for number in range(2)])
            began, claim = asyncio.Event(), client.claim

            async def handle(message: Message) -> None:
                seen.append(message.data)
                began.set()
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
                await client.ack(message)

            async def claims(*arguments: Any) -> Any:
                if seen or began.is_set():
                    raise errors.BadInput("nonsense")
                batch = await claim(*arguments)
                if not batch:
                    await began.wait()
                return batch

            workers = 1 if how == "cancelled" else 2
            if workers == 2:
                monkeypatch.setattr(client, "claim", claims)
            consumer = client.queue("orders").group("g").concurrency(workers).batch(2).each().wait(0).consume(handle)
            running = asyncio.ensure_future(consumer.run())
            await began.wait()
            if workers == 1:
                running.cancel()
            await asyncio.wait([running])
            assert running.cancelled() if workers == 1 else isinstance(running.exception(), errors.BadInput)
            assert (seen, await counted(client)) == ([0], (1, 0, 0))

    asyncio.run(job())
