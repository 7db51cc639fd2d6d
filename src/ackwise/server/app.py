"""The ASGI application: routes that carry messages first, everything else behind them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from starlette.types import ASGIApp

from ackwise.core.errors import AckwiseError, Draining, OutcomeUnknown
from ackwise.dialects.handover import LARGE, AnswerMemory, Handover
from ackwise.dialects.http import (
    CLOSING,
    EXCHANGE,
    Answer,
    Call,
    ForbiddenOrigin,
    Gone,
    Headers,
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
from ackwise.server.gates import Gate, is_navigation
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
        gate: Gate | None = None,
        any_options: bool = False,
        refusals: Mapping[str, Refuse] | None = None,
        sockets: Mapping[str, ASGIApp] | None = None,
        memory: AnswerMemory | None = None,
    ) -> None:
        """`routes` is asked at the first request: what they stand on begins with the application's lifespan.

        `refusals` are the spellings of errors of those faces that have their own, by the first segment of their paths;
        `sockets` are WebSockets by their paths. `any_options` answers OPTIONS with 204 on unknown paths, too.
        """
        self._routes = routes
        self._table: Table | None = None
        self._pages, self._sockets = pages, sockets or {}
        self._max_body = max_body
        self._intake = Intake()
        self._gate = gate or Gate()
        self._any_options = any_options
        self._memory = memory or AnswerMemory()
        self._refusals = refusals or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        if self._table is None:
            self._table = Table(self._routes())
        method = scope["method"]
        call: Call | None = None
        try:
            refused = self._gate.refusal(scope)
            if refused is not None and not self._leads_to_page(refused, scope):
                raise refused
            found = self._table.find(method, scope["raw_path"])
            if isinstance(found, tuple):
                call = Call(scope, receive, found[1], self._max_body, self._intake, self._memory)
                call.taken = method == "DELETE"
                reply = await found[0](call)
            elif found:
                reply = self._not_allowed(scope, method, found)
            elif method == "OPTIONS" and self._any_options:
                reply = Answer(b"", 204)
            elif _face(scope) in self._refusals:
                raise NoSuchRoute(path=scope["path"])
            else:
                await self._pages(scope, receive, send)
                return
        except Gone:
            if EXCHANGE in scope:
                scope[EXCHANGE].abandon()
            if call is not None and call.handover is not None:
                call.handover.lost()
            return
        except AckwiseError as problem:
            reply = self._refuse(scope)(problem)
            reply.close = problem.code in CLOSING
        except asyncio.CancelledError:
            # Only a shutdown that waits no longer does this.
            cut_off = OutcomeUnknown(_CUT_OFF) if call is not None and call.taken else Draining()
            reply = self._refuse(scope)(cut_off)
        except Exception:
            log.exception("%s %s failed", method, scope["path"])
            reply = self._refuse(scope)(None)
        cors = self._gate.cors_headers(scope)
        if isinstance(reply, Streamed):
            await self._stream(scope, call, reply, cors, send)
            return
        handover = self._handover(call, reply)
        try:
            exchange = scope.get(EXCHANGE)
            if exchange is None or not exchange.respond(reply, cors):
                await self._send(reply, cors, send)
        except BaseException:
            if handover is not None:
                handover.lost()
            raise
        if handover is not None:
            handover.delivered() if exchange is None else exchange.hand_over(handover)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check WebSockets at the same gate as requests. The pages handle the lifespan."""
        if scope["type"] == "websocket":
            refused = self._gate.refusal(scope)
            if refused is not None:
                await receive()
                await send({"type": "websocket.close"})  # before accepting: the client gets 403
                return
        face = self._sockets.get(scope["path"]) if scope["type"] == "websocket" else None
        await (face or self._pages)(scope, receive, send)

    def _leads_to_page(self, refused: AckwiseError, scope: Scope) -> bool:
        assert self._table is not None
        return isinstance(refused, ForbiddenOrigin) and is_navigation(scope) and self._table.is_page(scope["raw_path"])

    def _handover(self, call: Call | None, reply: Answer) -> Handover | None:
        """The handover of the answer until the socket has taken the answer. An error carries no messages."""
        handover = None if call is None else call.handover
        if handover is not None and reply.status >= 400:
            handover.lost()
        if handover is None and len(reply.body) > LARGE:
            handover = Handover(self._memory, "" if call is None else call.host)
        if handover is not None:
            handover.built(len(reply.body))
        return handover

    def _refuse(self, scope: Scope) -> Refuse:
        return self._refusals.get(_face(scope), refusal)

    def _not_allowed(self, scope: Scope, method: str, known: frozenset[str]) -> Answer:
        allow = ((b"allow", ", ".join(sorted(known)).encode()),)
        if method == "OPTIONS":
            return Answer(b"", 204, headers=allow)
        reply = self._refuse(scope)(MethodNotAllowed(f"{method} is not allowed here"))
        reply.headers = allow
        return reply

    async def _send(self, reply: Answer, more: Headers, send: Send) -> None:
        headers: list[tuple[bytes, bytes]] = [*reply.headers, *more]
        if reply.close:
            headers.append((b"connection", b"close"))
        if reply.status != 204:
            headers.append((b"content-type", reply.content_type))
            headers.append((b"content-length", b"%d" % len(reply.body)))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if reply.status == 204 else reply.body})

    async def _stream(self, scope: Scope, call: Call | None, reply: Streamed, cors: Headers, send: Send) -> None:
        """Send piece by piece. `send` waits for a client that reads slowly. A client that left ends the reading.

        What the route reserved of the answers' memory is held until the end: it covers the page on its way.
        """
        exchange = scope.get(EXCHANGE)
        headers = [*reply.headers, *cors, (b"content-type", reply.content_type)]
        try:
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            await send({"type": "http.response.body", "body": reply.body, "more_body": True})
            reply.body = b""
            async for piece in reply.rest:
                if exchange is not None and exchange.gone:
                    exchange.abandon()
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except Exception:
            # The head is sent: a body without its last chunk tells the client that the answer is incomplete.
            log.exception("%s %s failed half-way", scope["method"], scope["path"])
            if exchange is not None:
                exchange.cut()
                return
            raise
        finally:
            handover = None if call is None else call.handover
            if handover is not None:
                handover.delivered() if exchange is None else exchange.hand_over(handover)


def _face(scope: Scope) -> str:
    """The first segment of the path: which face it belongs to."""
    path: str = scope["path"]
    return path.strip("/").partition("/")[0]
