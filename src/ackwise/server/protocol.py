"""uvicorn's HTTP protocol with what a server needs on top: bounds on headers and on a client's patience, and a short
way for whole answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from ackwise.dialects.handover import LARGE, Handover
from ackwise.dialects.http import EXCHANGE, Answer, Headers
from ackwise.dialects.peers import Peers, address_of

MAX_HEADER_BYTES = 64 << 10
HEADER_PATIENCE = 20.0
"""How long a request's head may take to arrive, counted from the connection's start or the head's first byte."""
MOST_AHEAD = 16
"""How many requests a client may send ahead of one that waits."""
REST_PATIENCE = 30.0
"""How long the rest of a body may take to arrive after its request was answered early."""
WRITE_PATIENCE = 60.0
"""How long a client may leave an answer unread before its connection is cut."""


class Exchange:
    """One request and its answer on a connection. ASGI would take three messages for what is here in one piece."""

    __slots__ = ("_connection", "_cycle", "_refused")

    def __init__(self, connection: GuardedProtocol, cycle: RequestResponseCycle) -> None:
        self._connection, self._cycle = connection, cycle
        self._refused = False

    @property
    def gone(self) -> bool:
        """Whether the connection is known to be closed: an answer would reach nobody."""
        return self._connection.transport.is_closing()

    def when_gone(self, call: Callable[[], object] | None) -> None:
        """Whom to tell when the connection is lost; a connection serves one request at a time."""
        self._connection.on_gone = call
        if call is not None:
            # Who does not read does not learn that the other end hung up.
            self._connection.flow.resume_reading()
            if self.gone:
                call()

    def body(self) -> bytes | None:
        """The whole body, if it has arrived and nobody has to wait for it."""
        cycle = self._cycle
        return None if cycle.more_body or cycle.disconnected else bytes(cycle.body)

    def abandon(self) -> None:
        """Nobody is there to answer. uvicorn knows that of a connection's last request only."""
        self._cycle.disconnected = True

    def cut(self) -> None:
        """Close the connection within an answer."""
        self._cycle.disconnected = True
        self._connection.transport.abort()

    def respond(self, answer: Answer, more: Headers) -> bool:
        """Head and body in one write; False when they have to go the long way."""
        cycle, connection = self._cycle, self._connection
        if self.gone:
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
        self._refused = self.gone
        if not cycle.keep_alive:
            connection.transport.close()
        cycle.on_response()
        # A ring of references would keep the body until the collector comes.
        cycle.scope.pop(EXCHANGE, None)  # type: ignore[misc]
        return True

    def hand_over(self, handover: Handover) -> None:
        """Call after writing the answer. The answer is delivered when the socket has taken all of it."""
        if self._refused or not self._cycle.response_complete:
            handover.lost()
        elif self._connection.flow.write_paused:
            self._connection.unsent = handover
        else:
            handover.delivered()


class GuardedSocket(WebSocketsSansIOProtocol):
    """A WebSocket, which its peer address holds until it is closed."""

    peers: Peers

    def connection_lost(self, exc: Exception | None) -> None:
        self.peers.leave(address_of(self.client))
        super().connection_lost(exc)


class GuardedProtocol(HttpToolsProtocol):
    """Refuses connections beyond a number; cuts those that send too much head, send it too slowly, or never read."""

    peers = Peers()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = address_of(self.client)
        within_share = self.peers.enter(self._address)
        self._head_bytes = 0
        self._in_head = True
        self.on_gone: Callable[[], object] | None = None
        self.unsent: Handover | None = None
        """The answer that the socket has not yet taken."""
        self._slow_reader: asyncio.TimerHandle | None = None
        self._slow_head: asyncio.TimerHandle | None = self.loop.call_later(HEADER_PATIENCE, self._give_up)
        self._slow_rest: asyncio.TimerHandle | None = None
        if len(self.connections) > self.peers.max_connections:
            self._refuse(503, "too many connections; try again in a moment", "too_many_connections")
        elif not within_share:
            text = f"your address holds {self.peers.most} connections, the most for one address; close some of them"
            self._refuse(503, text, "too_many_connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self.peers.leave(self._address)
        self._watch_head(False)
        self._watch_rest(False)
        self._watch_reader(False)
        super().connection_lost(exc)
        if self.on_gone is not None:
            self.on_gone()
        if self.unsent is not None:
            self.unsent.lost()
            self.unsent = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        # Most heads come in one piece; only one that did not is timed and counted.
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
        self._keep_reading(len(self.pipeline) > MOST_AHEAD)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._keep_reading(len(self.cycle.body) > MAX_HEADER_BYTES)

    def _keep_reading(self, too_much: bool) -> None:
        """While a request waits, what its client sends ahead is read on, to see it hang up; too much ends both."""
        if self.on_gone is not None:
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
        self._slow_head = self.loop.call_later(HEADER_PATIENCE, self._give_up) if on else None

    def _watch_rest(self, on: bool) -> None:
        if self._slow_rest is not None:
            self._slow_rest.cancel()
        self._slow_rest = self.loop.call_later(REST_PATIENCE, self.transport.abort) if on else None

    def _watch_reader(self, on: bool) -> None:
        if self._slow_reader is not None:
            self._slow_reader.cancel()
        self._slow_reader = self.loop.call_later(WRITE_PATIENCE, self.transport.abort) if on else None

    def _give_up(self) -> None:
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
