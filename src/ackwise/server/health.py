"""Health routes: `/health`, `/livez` and `/readyz`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ackwise.broker import AsyncBroker
from ackwise.core.errors import Draining
from ackwise.protocols.product_version import VERSION
from ackwise.protocols.route_docs import RouteDoc


class HealthAnswer(msgspec.Struct):
    """Health of the server. An unhealthy server has an error with a code."""

    status: str
    error: str | msgspec.UnsetType = msgspec.UNSET
    code: str | msgspec.UnsetType | None = msgspec.UNSET
    last_write_seconds_ago: float | msgspec.UnsetType | None = msgspec.UNSET
    database: str | msgspec.UnsetType = msgspec.UNSET
    version: str | msgspec.UnsetType = msgspec.UNSET
    server: str | msgspec.UnsetType = msgspec.UNSET
    service: str | msgspec.UnsetType = msgspec.UNSET


_HEALTHY: dict[int, Any] = {200: HealthAnswer, 503: HealthAnswer}
DOCS = {
    "GET /health": RouteDoc(summary="Health of the server and its store", tag="server", answers=_HEALTHY),
    "GET /livez": RouteDoc(summary="Whether the process answers", tag="server", answers={200: HealthAnswer}),
    "GET /readyz": RouteDoc(summary="Whether the server takes requests", tag="server", answers=_HEALTHY),
}
"""Documentation of the pages for `/openapi.json`."""


def make_pages(broker: Callable[[], AsyncBroker], lifespan: Any) -> Starlette:
    """Starlette application of the health routes. `broker` may be called once the lifespan has begun."""

    def state() -> dict[str, Any]:
        """The broker's health. Reads memory only, so that a stuck disk or database cannot block it."""
        running = broker()
        if running.draining:
            return {"status": "draining", "error": "the server is shutting down", "code": Draining.code}
        pulse = running.pulse.health()
        if pulse.error is None:
            return {"status": "healthy", "last_write_seconds_ago": pulse.last_write}
        return {
            "status": "unhealthy",
            "error": pulse.error,
            "code": pulse.code,
            "last_write_seconds_ago": pulse.last_write,
        }

    async def health(_: Request) -> Response:
        current = state()
        healthy = current["status"] == "healthy"
        body = {**current, "database": "connected" if healthy else "unavailable", "version": VERSION}
        body |= {"server": "ackwise", "service": "ackwise"}
        return JSONResponse(body, _code(current))

    async def livez(_: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def readyz(_: Request) -> Response:
        current = state()
        body = {**current, "status": "ready"} if current["status"] == "healthy" else current
        return JSONResponse(body, _code(current))

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/livez", livez),
            Route("/readyz", readyz),
        ],
        exception_handlers={HTTPException: _error_response},
        lifespan=lifespan,
    )


def _code(current: dict[str, Any]) -> int:
    return 200 if current["status"] == "healthy" else 503


async def _error_response(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    codes = {404: ("Not Found", "no_such_route"), 405: ("Method Not Allowed", "method_not_allowed")}
    text, code = codes.get(problem.status_code, (problem.detail, "error"))
    return JSONResponse({"error": text, "code": code}, problem.status_code, headers=dict(problem.headers or {}))
