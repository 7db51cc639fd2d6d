"""Runs of an asyncio broker on a store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ackwise.broker.async_broker import AsyncBroker
from ackwise.store.sqlite import SQLiteStore
from tests.patience import PATIENCE


def on_loop(store: SQLiteStore, job: Callable[[AsyncBroker], Awaitable[None]]) -> None:
    async def run() -> None:
        broker = await AsyncBroker.start(store, background=False)
        try:
            await asyncio.wait_for(job(broker), PATIENCE)
            assert store.audit() == []
        finally:
            await broker.close()

    asyncio.run(run())


async def parked(broker: AsyncBroker, count: int) -> None:
    while len(broker.long_polls) < count:
        await asyncio.sleep(0)
