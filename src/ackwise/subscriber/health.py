"""Health endpoints of an app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ackwise.core.errors import BadInput
from ackwise.core.extras import needed

if TYPE_CHECKING:
    from aiohttp import web

    from ackwise.subscriber.app import App


METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@asynccontextmanager
async def serving(app: App, host: str, port: int | None) -> AsyncIterator[str | None]:
    """Serve health endpoints while the block runs. Yields their URL, or None without a port."""
    if port is None:
        yield None
        return
    with needed("client", "the health page of an app"):
        from aiohttp import web

    def answer(up: bool) -> web.Response:
        return web.json_response({"status": "UP" if up else "DOWN"}, status=200 if up else 503)

    async def live(request: web.Request) -> web.Response:
        return answer(app.live)

    async def ready(request: web.Request) -> web.Response:
        return answer(await app.ready())

    async def started(request: web.Request) -> web.Response:
        return answer(app.started)

    async def document(request: web.Request) -> web.Response:
        return web.json_response(app.asyncapi())

    pages = web.Application()
    pages.router.add_get("/health/live", live)
    pages.router.add_get("/health/ready", ready)
    pages.router.add_get("/health/started", started)
    pages.router.add_get("/asyncapi.json", document)
    async with _site(pages, host, port, "health endpoints") as where:
        yield where


@asynccontextmanager
async def serving_metrics(metrics: Callable[[], bytes], host: str, port: int | None) -> AsyncIterator[str | None]:
    """Serve metrics at `/metrics` while the block runs. Yields the URL, or None without a port."""
    if port is None:
        yield None
        return
    with needed("client", "the metrics port of an app"):
        from aiohttp import web

    async def scrape(request: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"content-type": METRICS_TYPE})

    pages = web.Application()
    pages.router.add_get("/metrics", scrape)
    pages.router.add_get("/metrics/prometheus", scrape)
    async with _site(pages, host, port, "metrics") as where:
        yield where


@asynccontextmanager
async def _site(pages: web.Application, host: str, port: int, what: str) -> AsyncIterator[str]:
    """Serve pages while the block runs. Yields their URL."""
    from aiohttp import web

    runner = web.AppRunner(pages, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as problem:
            raise BadInput(f"cannot serve {what} on {host}:{port}: {problem.strerror or problem}") from None
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
