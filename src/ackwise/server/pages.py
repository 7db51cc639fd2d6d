"""What is not about messages: is the server alive, is it ready, what is it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ackwise.broker import AsyncBroker
from ackwise.core.errors import Draining
from ackwise.server.about import VERSION


def make_pages(broker: Callable[[], AsyncBroker], lifespan: Any) -> Starlette:
    """`broker` is there once the lifespan has begun."""

    def look() -> dict[str, Any]:
        """The broker's pulse. Health pages read memory only: a stuck disk or database cannot block them."""
        at_work = broker()
        if at_work.draining:
            return {"status": "draining", "error": "the server is shutting down", "code": Draining.code}
        pulse = at_work.pulse.health()
        if pulse.error is None:
            return {"status": "healthy", "last_write_seconds_ago": pulse.last_write}
        return {
            "status": "unhealthy",
            "error": pulse.error,
            "code": pulse.code,
            "last_write_seconds_ago": pulse.last_write,
        }

    async def health(_: Request) -> Response:
        found = look()
        healthy = found["status"] == "healthy"
        body = {**found, "database": "connected" if healthy else "unavailable", "version": VERSION}
        body |= {"server": "ackwise", "service": "ackwise"}
        return JSONResponse(body, _code(found))

    async def livez(_: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def readyz(_: Request) -> Response:
        found = look()
        shown = {**found, "status": "ready"} if found["status"] == "healthy" else found
        return JSONResponse(shown, _code(found))

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/livez", livez),
            Route("/readyz", readyz),
        ],
        exception_handlers={HTTPException: _refused},
        lifespan=lifespan,
    )


def _code(found: dict[str, Any]) -> int:
    return 200 if found["status"] == "healthy" else 503


async def _refused(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    codes = {404: ("Not Found", "no_such_route"), 405: ("Method Not Allowed", "method_not_allowed")}
    text, code = codes.get(problem.status_code, (problem.detail, "error"))
    return JSONResponse({"error": text, "code": code}, problem.status_code, headers=dict(problem.headers or {}))
