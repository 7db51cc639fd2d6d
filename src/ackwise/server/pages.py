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
from ackwise.core.errors import AckwiseError
from ackwise.core.queries import ListQueues
from ackwise.server.about import VERSION


def make_pages(broker: Callable[[], AsyncBroker], lifespan: Any) -> Starlette:
    """`broker` is there once the lifespan has begun."""

    async def look() -> dict[str, Any]:
        """One small query through the store: the whole way a message takes."""
        at_work = broker()
        if at_work.draining:
            return {"status": "draining", "error": "the server is shutting down"}
        try:
            await at_work.ask(ListQueues(namespace="-"))
        except AckwiseError as problem:
            return {"status": "unhealthy", "error": problem.message, "code": problem.code}
        return {"status": "healthy"}

    async def health(_: Request) -> Response:
        found = await look()
        healthy = found["status"] == "healthy"
        body = {**found, "database": "connected" if healthy else "unavailable", "version": VERSION}
        body |= {"server": "ackwise", "service": "ackwise"}
        return JSONResponse(body, _code(found))

    async def livez(_: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def readyz(_: Request) -> Response:
        found = await look()
        return JSONResponse({"status": "ready"} if found["status"] == "healthy" else found, _code(found))

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
