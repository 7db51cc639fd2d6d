"""How an app is, over HTTP: alive, ready, started; and what it receives, as AsyncAPI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from ackwise.core.errors import BadInput

if TYPE_CHECKING:
    from ackwise.subscriber.app import App


@asynccontextmanager
async def serving(app: App, host: str, port: int | None) -> AsyncIterator[str | None]:
    """Answers at the URL inside its block; without a port there is nothing."""
    if port is None:
        yield None
        return

    def told(up: bool) -> web.Response:
        return web.json_response({"status": "UP" if up else "DOWN"}, status=200 if up else 503)

    async def live(request: web.Request) -> web.Response:
        return told(app.live)

    async def ready(request: web.Request) -> web.Response:
        return told(await app.ready())

    async def started(request: web.Request) -> web.Response:
        return told(app.started)

    async def document(request: web.Request) -> web.Response:
        return web.json_response(app.asyncapi())

    pages = web.Application()
    pages.router.add_get("/health/live", live)
    pages.router.add_get("/health/ready", ready)
    pages.router.add_get("/health/started", started)
    pages.router.add_get("/asyncapi.json", document)
    runner = web.AppRunner(pages, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as problem:
            raise BadInput(f"health cannot be served on {host}:{port}: {problem.strerror or problem}") from None
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
