"""The ASGI application: routes that carry messages first, everything else behind them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from starlette.types import ASGIApp

from ackwise.core.errors import AckwiseError, Draining, OutcomeUnknown
from ackwise.dialects.http import (
    EXCHANGE,
    Answer,
    Call,
    Gone,
    Intake,
    MethodNotAllowed,
    NoSuchRoute,
    Receive,
    Refuse,
    Route,
    Scope,
    Send,
    Streamed,
    refusal,
)
from ackwise.server.routing import Table

log = logging.getLogger("ackwise.server")

DEFAULT_MAX_BODY = 64 << 20
_CUT_OFF = "the server was stopped before it could answer: it may or may not have happened"


class Application:
    """Finds the handler, runs it, turns whatever it raises into an answer; what it does not know goes to `pages`."""

    def __init__(
        self,
        routes: Callable[[], Iterable[Route]],
        pages: ASGIApp,
        *,
        max_body: int = DEFAULT_MAX_BODY,
        cors: str | None = None,
        refusals: Mapping[str, Refuse] | None = None,
        sockets: Mapping[str, ASGIApp] | None = None,
    ) -> None:
        """`routes` is asked at the first request: what they stand on begins with the application's lifespan.

        `refusals` are the spellings of errors of those faces that have their own, by the first segment of their paths;
        `sockets` are WebSockets by their paths.
        """
        self._routes = routes
        self._table: Table | None = None
        self._pages, self._sockets = pages, sockets or {}
        self._max_body = max_body
        self._intake = Intake()
        self._cors = _cors_headers(cors)
        self._refusals = refusals or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            face = self._sockets.get(scope["path"]) if scope["type"] == "websocket" else None
            await (face or self._pages)(scope, receive, send)
            return
        if self._table is None:
            self._table = Table(self._routes())
        method = scope["method"]
        call: Call | None = None
        try:
            found = self._table.find(method, scope["raw_path"])
            if isinstance(found, tuple):
                call = Call(scope, receive, found[1], self._max_body, self._intake)
                call.taken = method == "DELETE"
                reply = await found[0](call)
            elif found:
                reply = self._not_allowed(scope, method, found)
            elif _face(scope) in self._refusals:
                raise NoSuchRoute(path=scope["path"])
            else:
                await self._pages(scope, receive, send)
                return
        except Gone:
            if EXCHANGE in scope:
                scope[EXCHANGE].abandon()
            return
        except AckwiseError as problem:
            reply = self._refuse(scope)(problem)
        except asyncio.CancelledError:
            # Only a shutdown that waits no longer does this.
            cut_off = OutcomeUnknown(_CUT_OFF) if call is not None and call.taken else Draining()
            reply = self._refuse(scope)(cut_off)
        except Exception:
            log.exception("%s %s failed", method, scope["path"])
            reply = self._refuse(scope)(None)
        exchange = scope.get(EXCHANGE)
        if isinstance(reply, Streamed):
            await self._stream(scope, reply, send)
        elif exchange is None or not exchange.respond(reply, self._cors):
            await self._send(reply, send)

    def _refuse(self, scope: Scope) -> Refuse:
        return self._refusals.get(_face(scope), refusal)

    def _not_allowed(self, scope: Scope, method: str, known: frozenset[str]) -> Answer:
        allow = ((b"allow", ", ".join(sorted(known)).encode()),)
        if method == "OPTIONS":
            return Answer(b"", 204, headers=allow)
        reply = self._refuse(scope)(MethodNotAllowed(f"{method} is not allowed here"))
        reply.headers = allow
        return reply

    async def _send(self, reply: Answer, send: Send) -> None:
        headers: list[tuple[bytes, bytes]] = [*reply.headers, *self._cors]
        if reply.status != 204:
            headers.append((b"content-type", reply.content_type))
            headers.append((b"content-length", b"%d" % len(reply.body)))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if reply.status == 204 else reply.body})

    async def _stream(self, scope: Scope, reply: Streamed, send: Send) -> None:
        """Send piece by piece; `send` waits for a client that reads slowly. A client that left ends the reading."""
        exchange = scope.get(EXCHANGE)
        headers = [*reply.headers, *self._cors, (b"content-type", reply.content_type)]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body, "more_body": True})
        reply.body = b""
        try:
            async for piece in reply.rest:
                if exchange is not None and exchange.gone:
                    exchange.abandon()
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Exception:
            # The head is sent: a body that ends without its last chunk tells the client that it is not whole.
            log.exception("%s %s failed half-way", scope["method"], scope["path"])
            if exchange is not None:
                exchange.cut()
                return
            raise
        await send({"type": "http.response.body", "body": b""})


def _face(scope: Scope) -> str:
    """The first segment of the path: which face it belongs to."""
    path: str = scope["path"]
    return path.strip("/").partition("/")[0]


def _cors_headers(origin: str | None) -> tuple[tuple[bytes, bytes], ...]:
    if origin is None:
        return ()
    return (
        (b"access-control-allow-origin", origin.encode()),
        (b"access-control-allow-methods", b"GET, POST, PUT, DELETE, OPTIONS"),
        (b"access-control-allow-headers", b"Content-Type, Authorization"),
    )
