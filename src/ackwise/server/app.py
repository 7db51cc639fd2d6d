"""ASGI application: checks a request, finds its handler, and sends its answer or its error."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import cache
from typing import TYPE_CHECKING, Any

from ackwise.core.errors import AckwiseError, Draining, OutcomeUnknown
from ackwise.core.events import EventPort, EventStream, RequestServed
from ackwise.protocols.answer_memory import LARGE, AnswerMemory, PendingAnswer
from ackwise.protocols.http_request import EXCHANGE, Call, ClientDisconnected, IncomingBytes, Receive, Scope, Send
from ackwise.protocols.http_response import (
    CLOSING_CODES,
    Answer,
    ErrorWriter,
    ForbiddenOrigin,
    Headers,
    MethodNotAllowed,
    NoSuchRoute,
    Route,
    StreamedAnswer,
    error_answer,
)
from ackwise.server.gates import Gate, is_navigation
from ackwise.server.route_table import RouteTable

if TYPE_CHECKING:
    from starlette.types import ASGIApp

log = logging.getLogger("ackwise.server")

DEFAULT_MAX_BODY = 64 << 20
NO_ROUTE = "unknown"
"""Route of a request that no handler serves."""
COMMAND = "ackwise.command"
"""Scope key of the command of a request to `/v1/admin`, for events. The handler sets it."""
PAGE_ROUTE = "ackwise.page_route_pattern"
"""Scope key of the pattern of a page's path, for events. `pages` sets it for paths with names in them."""
CLIENT_LEFT = 499
"""Status that an event has if the client left before the answer. No client sees this status."""
_CUT_OFF = "the server stopped before it could answer; the request may or may not have happened"


class Application:
    """Runs the handler of a route and turns its exceptions into answers. `pages` answers paths without a route."""

    def __init__(
        self,
        routes: Callable[[], Iterable[Route]],
        pages: ASGIApp,
        *,
        max_body: int = DEFAULT_MAX_BODY,
        gate: Gate | None = None,
        any_options: bool = False,
        error_writers: Mapping[str, ErrorWriter] | None = None,
        sockets: Mapping[str, ASGIApp] | None = None,
        memory: AnswerMemory | None = None,
        peer_share: float = 1.0,
        events: EventPort | None = None,
        is_page: Callable[[Scope], bool] = lambda _: False,
    ) -> None:
        """Calls `routes` at the first request, because handlers need the broker that the lifespan starts.

        `error_writers` are protocols with their own form of errors, by the first segment of their paths. `sockets` are
        WebSockets by path. `any_options` answers OPTIONS with 204 also on unknown paths. `peer_share` is the
        share of the memory for bodies that one address gets. `is_page` says of a path that `pages` answers whether
        a link of another web site may lead to it.
        """
        self._routes = routes
        self._table: RouteTable | None = None
        self._pages, self._sockets = pages, sockets or {}
        self._max_body = max_body
        self._incoming = IncomingBytes(share=peer_share, each=max_body)
        self._gate = gate or Gate()
        self._any_options = any_options
        self._memory = memory or AnswerMemory()
        self._error_writers = error_writers or {}
        self._events = events or EventStream()
        self._is_page = is_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        if self._table is None:
            self._table = RouteTable(self._routes())
        method = scope["method"]
        call: Call | None = None
        route = NO_ROUTE
        began = time.perf_counter()
        try:
            refused = self._gate.refusal(scope)
            if refused is not None and not self._leads_to_page(refused, scope):
                raise refused
            path = scope["raw_path"]
            match = self._table.known.get((method, path)) or self._table.find(method, path)
            if isinstance(match, tuple):
                handler, params, route = match
                call = Call(scope, receive, params, self._max_body, self._incoming, self._memory)
                call.received = method == "DELETE"
                reply = await handler(call)
            elif (unrouted := self._unrouted(scope, method, match)) is not None:
                reply = unrouted
            else:
                await self._serve_page(scope, receive, send, began)
                return
        except ClientDisconnected:
            _abandon(scope, call)
            self._note_served(scope, route, CLIENT_LEFT, began, call)
            return
        except AckwiseError as problem:
            reply = self._error_writer(scope)(problem)
            reply.close = problem.code in CLOSING_CODES
        except asyncio.CancelledError:
            # Only a shutdown whose grace is over cancels requests.
            cut_off = OutcomeUnknown(_CUT_OFF) if call is not None and call.received else Draining()
            reply = self._error_writer(scope)(cut_off)
        except Exception:
            log.exception("%s %s failed", method, scope["path"])
            reply = self._error_writer(scope)(None)
        await self._send_reply(scope, call, reply, send)
        self._note_served(scope, route, reply.status, began, call)

    async def _serve_page(self, scope: Scope, receive: Receive, send: Send, began: float) -> None:
        """Serves a path without a route of a protocol: a page, or 404."""
        status = 500

        async def note_status(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        await self._pages(scope, receive, note_status)
        route = NO_ROUTE if status == 404 else scope.get(PAGE_ROUTE, scope["path"])
        self._note_served(scope, route, status, began)

    def _note_served(self, scope: Scope, route: str, status: int, began: float, call: Call | None = None) -> None:
        if self._events.listening:
            peer = scope["client"][0] if scope.get("client") else ""
            seconds = time.perf_counter() - began
            queue, messages = ("", 0) if call is None else (call.queue or queue_in_path(route, call), call.messages)
            command = scope.get(COMMAND, "")
            self._events.emit(RequestServed(scope["method"], route, status, seconds, peer, queue, messages, command))

    def _unrouted(self, scope: Scope, method: str, allowed: frozenset[str]) -> Answer | None:
        """Answer to a request without a handler. None: the pages answer it."""
        if allowed:
            return self._not_allowed(scope, method, allowed)
        if method == "OPTIONS" and self._any_options:
            return Answer(b"", 204)
        if _first_segment(scope) in self._error_writers:
            raise NoSuchRoute(path=scope["path"])
        return None

    async def _send_reply(self, scope: Scope, call: Call | None, reply: Answer, send: Send) -> None:
        """Sends the answer. If the socket does not take the answer, the claims in it are released."""
        cors = self._gate.cors_headers(scope) if self._gate.origins else ()
        if isinstance(reply, StreamedAnswer):
            await self._stream(scope, call, reply, cors, send)
            return
        pending = self._pending_answer(call, reply)
        try:
            exchange = scope.get(EXCHANGE)
            if exchange is None or not exchange.respond(reply, cors):
                await self._send(reply, cors, send)
        except BaseException:
            if pending is not None:
                pending.lost()
            raise
        if pending is not None:
            pending.delivered() if exchange is None else exchange.track(pending)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves WebSockets and the lifespan. The gate of requests checks WebSockets. Pages handle the lifespan."""
        if scope["type"] == "websocket":
            refused = self._gate.refusal(scope)
            if refused is not None:
                await receive()
                await send({"type": "websocket.close"})  # before accepting: the client gets 403
                return
        handler = self._sockets.get(scope["path"]) if scope["type"] == "websocket" else None
        await (handler or self._pages)(scope, receive, send)

    def _leads_to_page(self, refused: AckwiseError, scope: Scope) -> bool:
        assert self._table is not None
        if not isinstance(refused, ForbiddenOrigin) or not is_navigation(scope):
            return False
        return self._table.is_page(scope["raw_path"]) or self._is_page(scope)

    def _pending_answer(self, call: Call | None, reply: Answer) -> PendingAnswer | None:
        """The reply as a pending answer. None for a small reply without claims. An error releases the claims."""
        pending = None if call is None else call.pending
        if pending is not None and reply.status >= 400:
            pending.lost()
        if pending is None and len(reply.body) > LARGE:
            pending = PendingAnswer(self._memory, "" if call is None else call.address)
        if pending is not None:
            pending.built(len(reply.body))
        return pending

    def _error_writer(self, scope: Scope) -> ErrorWriter:
        return self._error_writers.get(_first_segment(scope), error_answer)

    def _not_allowed(self, scope: Scope, method: str, allowed: frozenset[str]) -> Answer:
        allow = ((b"allow", ", ".join(sorted(allowed)).encode()),)
        if method == "OPTIONS":
            return Answer(b"", 204, headers=allow)
        reply = self._error_writer(scope)(MethodNotAllowed(f"{method} is not allowed here"))
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

    async def _stream(self, scope: Scope, call: Call | None, reply: StreamedAnswer, cors: Headers, send: Send) -> None:
        """Sends a streamed answer. `send` waits for a slow client. A disconnect ends the stream.

        The answer memory that the route reserved covers one page and is held until the end.
        """
        exchange = scope.get(EXCHANGE)
        headers = [*reply.headers, *cors, (b"content-type", reply.content_type)]
        try:
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            await send({"type": "http.response.body", "body": reply.body, "more_body": True})
            reply.body = b""
            async for piece in reply.rest:
                if exchange is not None and exchange.disconnected:
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
            pending = None if call is None else call.pending
            if pending is not None:
                pending.delivered() if exchange is None else exchange.track(pending)


def _first_segment(scope: Scope) -> str:
    """First segment of the path: it selects the protocol."""
    path: str = scope["path"]
    return path.strip("/").partition("/")[0]


def queue_in_path(route: str, call: Call) -> str:
    """The queue that the path names, or an empty text."""
    place = queue_place(route)
    return "" if place is None or place >= len(call.params) else call.params[place]


@cache
def queue_place(route: str) -> int | None:
    """Index of the route's parameter that names the queue. None if the route has no such parameter."""
    parameters = [segment for segment in route.split("/") if segment.startswith("{")]
    return parameters.index("{queue}") if "{queue}" in parameters else None


def _abandon(scope: Scope, call: Call | None) -> None:
    """Sends no answer and releases the claims: the client has disconnected."""
    if EXCHANGE in scope:
        scope[EXCHANGE].abandon()
    if call is not None and call.pending is not None:
        call.pending.lost()
