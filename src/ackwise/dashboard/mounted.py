"""Dashboard for an ASGI application of the user: opens its own store, at the start or at the first request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from ackwise.broker import AsyncBroker
from ackwise.core.errors import Draining
from ackwise.dashboard.app import Dashboard
from ackwise.store.port import Store

STREAM_SECONDS = 15.0
"""Seconds of one connection for live events. During a shutdown the application's server waits for the connection."""


class MountedDashboard:
    """ASGI application to mount at any path.

    Frameworks do not pass their lifespan to a mounted application. Call `aclose` when the application ends. An
    application that runs the dashboard alone needs no call: the lifespan closes the store.
    """

    def __init__(self, open_store: Callable[[], Store], *, read_only: bool = False) -> None:
        self._open_store = open_store
        self._opening: asyncio.Task[AsyncBroker] | None = None
        self._closed = False
        self.dashboard = Dashboard(self._broker, read_only=read_only, stream_seconds=STREAM_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})
        else:
            await self.dashboard(scope, receive, send)

    async def aclose(self) -> None:
        """End live events and close the store."""
        self._closed = True
        self.dashboard.live.stop()
        if self._opening is not None:
            await (await self._opening).close()

    async def _broker(self) -> AsyncBroker:
        """The broker of the store. Concurrent first requests open one store. The next request retries a failed open."""
        if self._closed:
            raise Draining("the dashboard is closed")
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.get_running_loop().create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> AsyncBroker:
        store = await asyncio.to_thread(self._open_store)
        try:
            broker = await AsyncBroker.start(store)
        except BaseException:
            store.close()
            raise
        await broker.first_beat()
        return broker

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._broker()
        except Exception as problem:
            await send({"type": "lifespan.startup.failed", "message": str(problem)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})
