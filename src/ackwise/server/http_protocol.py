"""HTTP protocol for uvicorn with connection limits, timeouts, and answers in one write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from ackwise.observability.debug_log import debug_records
from ackwise.protocols.answer_memory import LARGE, PendingAnswer
from ackwise.protocols.http_request import EXCHANGE, TARGET
from ackwise.protocols.http_response import Answer, Headers
from ackwise.protocols.peers import Peers, address_of

log = logging.getLogger("ackwise.server")

MAX_HEADER_BYTES = 64 << 10
HEADER_PATIENCE = 20.0
"""Seconds within which a request's head must arrive, from the connection's start or the head's first byte."""
MOST_AHEAD = 16
"""Requests that a client may send while an earlier one waits."""
REST_PATIENCE = 30.0
"""Seconds within which the rest of a body must arrive after an early answer."""
WRITE_PATIENCE = 60.0
"""Seconds within which a client must read its answer."""


class Exchange:
    """One request and its answer on a connection. Sends an answer with one call instead of the three of ASGI."""

    __slots__ = ("_connection", "_cycle", "_refused")

    def __init__(self, connection: GuardedProtocol, cycle: RequestResponseCycle) -> None:
        self._connection, self._cycle = connection, cycle
        self._refused = False

    @property
    def disconnected(self) -> bool:
        """Whether the connection is known to be closed."""
        return self._connection.transport.is_closing()

    def on_disconnect(self, call: Callable[[], object] | None) -> None:
        """Sets the callback for a lost connection. A connection serves one request at a time."""
        self._connection.disconnect_callback = call
        if call is not None:
            # Only a socket that is read reports the disconnect.
            self._connection.flow.resume_reading()
            if self.disconnected:
                call()

    def body(self) -> bytes | None:
        """The whole body, or None if it has not arrived yet."""
        cycle = self._cycle
        return None if cycle.more_body or cycle.disconnected else bytes(cycle.body)

    def abandon(self) -> None:
        """Sends no answer. uvicorn detects a disconnect only for a connection's last request."""
        self._cycle.disconnected = True

    def cut(self) -> None:
        """Closes the connection within an answer, which tells the client that the answer is incomplete."""
        self._cycle.disconnected = True
        self._connection.transport.abort()

    def respond(self, answer: Answer, more: Headers) -> bool:
        """Sends head and body in one write. False if the caller must use ASGI messages."""
        cycle, connection = self._cycle, self._connection
        if self.disconnected:
            self._refused = True
            self.abandon()
            return True
        if cycle.disconnected or connection.flow.write_paused or cycle.scope["method"] == "HEAD":
            return False
        if answer.close:
            cycle.keep_alive = False
        head = [STATUS_LINE[answer.status]]
        for name, value in (*connection.server_state.default_headers, *answer.headers, *more):
            head += (name, b": ", value, b"\r\n")
        if not cycle.keep_alive:
            head.append(b"connection: close\r\n")
        if answer.status == 204:
            head.append(b"\r\n")
        else:
            head.append(b"content-type: %b\r\ncontent-length: %d\r\n\r\n" % (answer.content_type, len(answer.body)))
            if len(answer.body) <= LARGE:
                head.append(answer.body)
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        connection.transport.write(b"".join(head))
        if answer.status != 204 and len(answer.body) > LARGE:
            # Not copied: the body may take most of the answer memory.
            connection.transport.write(answer.body)
        # A write that fails closes the transport at once: the client hung up since the last check.
        self._refused = self.disconnected
        if not cycle.keep_alive:
            connection.transport.close()
        cycle.on_response()
        # Breaks a reference cycle that would keep the body until the next garbage collection.
        cycle.scope.pop(EXCHANGE, None)  # type: ignore[misc]
        return True

    def track(self, pending: PendingAnswer) -> None:
        """Reports the pending answer as delivered when the socket has taken all of it. Call after the write."""
        if self._refused or not self._cycle.response_complete:
            pending.lost()
        elif self._connection.flow.write_paused:
            self._connection.unsent = pending
        else:
            pending.delivered()


class GuardedSocket(WebSocketsSansIOProtocol):
    """WebSocket that counts as a connection of its peer address until it is closed."""

    peers: Peers
    address = ""
    """Peer address under which `peers` counts the connection. A socket that was reset no longer knows its peer."""

    _slow_reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # The socket counts as writable only when the client has taken everything: until then its memory is in use.
        transport.set_write_buffer_limits(high=0)

    def connection_lost(self, exc: Exception | None) -> None:
        self.peers.leave(self.address)
        self._watch_reader(False)
        super().connection_lost(exc)
        debug_records.write(log, "connection closed", peer=self.address, websocket=True)

    async def send(self, message: Any) -> None:
        await super().send(message)
        # A write to a broken connection only closes the transport. uvicorn learns of it in the next turn of the loop.
        if message["type"] == "websocket.send" and self.transport.is_closing():
            raise ClientDisconnected

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch_reader(False)

    def _watch_reader(self, on: bool) -> None:
        """Starts or stops the timer that aborts a WebSocket whose client does not read.

        uvicorn closes a socket after a missing pong, but that close waits until the client has read everything.
        """
        if self._slow_reader is not None:
            self._slow_reader.cancel()
        self._slow_reader = self.loop.call_later(WRITE_PATIENCE, self.transport.abort) if on else None


class GuardedProtocol(HttpToolsProtocol):
    """HTTP protocol with limits: refuses connections above the limit.

    It closes a connection whose head is too large or too slow, or whose client does not read.
    """

    peers = Peers()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = address_of(self.client)
        within_share = self.peers.enter(self._address)
        self._head_bytes = 0
        self._in_head = True
        self._running: RequestResponseCycle | None = None
        self.disconnect_callback: Callable[[], object] | None = None
        self.unsent: PendingAnswer | None = None
        """The answer that the socket has not yet taken."""
        self._slow_reader: asyncio.TimerHandle | None = None
        self._slow_head: asyncio.TimerHandle | None = self.loop.call_later(HEADER_PATIENCE, self._head_timed_out)
        self._slow_rest: asyncio.TimerHandle | None = None
        debug_records.write(log, "connection opened", peer=self._address, connections=len(self.connections))
        if len(self.connections) > self.peers.max_connections:
            self._refuse(503, "too many connections; try again in a moment", "too_many_connections")
        elif not within_share:
            text = f"your address holds {self.peers.most} connections, the most for one address; close some of them"
            self._refuse(503, text, "too_many_connections")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._running is not None:
            # uvicorn informs only the last request that it has read. The running request may still write its answer.
            self._running.disconnected = True
        self.peers.leave(self._address)
        self._watch_head(False)
        self._watch_rest(False)
        self._watch_reader(False)
        super().connection_lost(exc)
        debug_records.write(log, "connection closed", peer=self._address, connections=len(self.connections))
        if self.disconnect_callback is not None:
            self.disconnect_callback()
        if self.unsent is not None:
            self.unsent.lost()
            self.unsent = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        # Most heads arrive in one piece. Only the others are timed and counted.
        if self._in_head and self._head_bytes and not self.transport.is_closing():
            if self._head_bytes > MAX_HEADER_BYTES:
                self._refuse(431, "the headers are too large", "headers_too_large")
            elif self._slow_head is None:
                self._watch_head(True)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._watch_head(False)
        super().on_headers_complete()
        self.scope[EXCHANGE] = Exchange(self, self.cycle)  # type: ignore[literal-required]
        if not self.url.startswith(b"/"):
            self.scope[TARGET] = self.url  # type: ignore[literal-required]
        self._keep_reading(len(self.pipeline) > MOST_AHEAD)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._keep_reading(len(self.cycle.body) > MAX_HEADER_BYTES)

    def _keep_reading(self, too_much: bool) -> None:
        """Keeps reading while a request waits, to notice a disconnect. Aborts the connection if too much arrives."""
        if self.disconnect_callback is not None:
            if too_much:
                self.transport.abort()
            else:
                self.flow.resume_reading()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head, self._head_bytes = True, 0
        self._watch_rest(False)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # uvicorn starts its idle timer anew with every byte, so a trickling body would keep the connection forever.
        if self.cycle.response_complete and not self._in_head and not self.transport.is_closing():
            self._watch_rest(True)

    def handle_websocket_upgrade(self) -> None:
        """Upgrades the connection to a WebSocket. Afterwards this protocol gets no events of the connection."""
        if not self.url.startswith(b"/"):
            self._refuse(400, "the target of a WebSocket is a path", "bad_request")
        elif self.flow.write_paused or (self._running is not None and not self._running.response_complete):
            # An earlier answer is under way, and only this protocol can release its messages and memory.
            self.transport.abort()
        else:
            super().handle_websocket_upgrade()
            socket = self.transport.get_protocol()
            assert isinstance(socket, GuardedSocket)
            socket.address = self._address

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg, "bad_request")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch_reader(False)
        if self.unsent is not None:
            self.unsent.delivered()
            self.unsent = None

    def _watch_head(self, on: bool) -> None:
        if self._slow_head is not None:
            self._slow_head.cancel()
        self._slow_head = self.loop.call_later(HEADER_PATIENCE, self._head_timed_out) if on else None

    def _watch_rest(self, on: bool) -> None:
        if self._slow_rest is not None:
            self._slow_rest.cancel()
        self._slow_rest = self.loop.call_later(REST_PATIENCE, self.transport.abort) if on else None

    def _watch_reader(self, on: bool) -> None:
        if self._slow_reader is not None:
            self._slow_reader.cancel()
        self._slow_reader = self.loop.call_later(WRITE_PATIENCE, self.transport.abort) if on else None

    def _head_timed_out(self) -> None:
        self._slow_head = None
        if not self.transport.is_closing():
            self._refuse(408, "the request did not arrive in time", "request_timeout")

    def _refuse(self, status: int, text: str, code: str) -> None:
        body = b'{"error":"%b","code":"%b"}' % (text.encode(), code.encode())
        self.transport.write(
            b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (STATUS_LINE[status], len(body), body)
        )
        self.transport.close()
