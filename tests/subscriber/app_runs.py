"""Runs of a subscriber app, and the ways in which tests look at it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import ackwise
from ackwise.subscriber import App
from tests.patience import PATIENCE


def go(job: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(PATIENCE):
            await job()

    asyncio.run(within())


def connection(app: App) -> ackwise.AsyncConnection:
    found: ackwise.AsyncConnection = app.link().connection  # type: ignore[attr-defined]
    return found


async def until_acked(app: App, queue: str, count: int, group: str | None = None) -> None:
    while not any(one.acked >= count for one in (await connection(app).groups(queue))):
        await asyncio.sleep(0.005)
