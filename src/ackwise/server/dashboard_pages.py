"""Dashboard of the server: serves the pages below `/dashboard`, and the overview at `/` for browsers."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from ackwise.dashboard.app import PAGE_ROUTE as ROUTE_BELOW
from ackwise.dashboard.app import Dashboard
from ackwise.protocols.http_request import Call, Receive, Scope, Send
from ackwise.protocols.http_response import Answer
from ackwise.server.app import PAGE_ROUTE

if TYPE_CHECKING:
    from starlette.types import ASGIApp

ROOT = "/dashboard"
_OWN_HEADERS = (b"content-length", b"content-type", b"vary")
"""Headers that the answer to `/` sets itself."""


class Pages:
    """ASGI application of all paths without a route: the dashboard, and `others` such as health."""

    def __init__(self, dashboard: Dashboard, others: ASGIApp) -> None:
        self._dashboard, self._others = dashboard, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_below(scope):
            await self._others(scope, receive, send)
            return
        inner = _mounted(scope)
        try:
            await self._dashboard(inner, receive, send)
        finally:
            scope[PAGE_ROUTE] = ROOT + inner.get(ROUTE_BELOW, "")

    def is_page(self, scope: Scope) -> bool:
        """Whether a link of another web site may lead to the path."""
        return _is_below(scope) and self._dashboard.is_page(_mounted(scope))

    async def overview(self, call: Call) -> Answer:
        """The overview as an answer of the route `/`."""
        inner = {**_mounted(call.scope), "path": f"{ROOT}/", "raw_path": f"{ROOT}/".encode(), "method": "GET"}
        status, headers, body = 500, [], bytearray()

        async def collect(message: MutableMapping[str, Any]) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], message["headers"]
            else:
                body.extend(message.get("body", b""))

        await self._dashboard(inner, _nothing, collect)
        kept = tuple((name, value) for name, value in headers if name not in _OWN_HEADERS)
        return Answer(bytes(body), status, b"text/html; charset=utf-8", (*kept, (b"vary", b"Accept, HX-Request")))


async def _nothing() -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


def _is_below(scope: Scope) -> bool:
    path: str = scope.get("path", "")
    return scope["type"] == "http" and (path == ROOT or path.startswith(f"{ROOT}/"))


def _mounted(scope: Scope) -> dict[str, Any]:
    return {**scope, "root_path": scope.get("root_path", "") + ROOT}
