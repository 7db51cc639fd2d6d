"""HTTP request for all protocols: body, query, limits and disconnects, over plain ASGI."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.broker.deliveries import Gate
from ackwise.core import errors
from ackwise.core.answers import Claimed
from ackwise.protocols.answer_memory import AnswerMemory, PendingAnswer
from ackwise.protocols.peers import counted

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


BODY_PATIENCE = 30.0
"""Seconds within which the next piece of a body must arrive, and all of a small body."""
SLOWEST_BODY = 32 << 10
"""Minimum transfer rate of a large body, in bytes per second."""

EXCHANGE = "ackwise.exchange"
"""Scope key of the server's `Exchange`, which answers a request with less work than ASGI messages."""
TARGET = "ackwise.target"
"""Scope key of a request target that is more than a path."""

T = TypeVar("T")
_LOST_PLUS = re.compile(r" (?=\d\d:?\d\d$)")


class ClientDisconnected(Exception):
    """The client has disconnected, so the server sends no answer."""


class BodyTooLarge(errors.BadInput):
    """The body is larger than the server's limit."""

    code = "body_too_large"


class BodyTooSlow(errors.BadInput):
    """The body did not arrive in time."""

    code = "body_too_slow"


class BadHead(errors.BadInput):
    """The request's head is malformed."""

    code = "bad_request"


class IncomingBytes:
    """Bound on the bytes of bodies that are arriving, over all connections.

    One peer address gets at most its `share`, and room for one body of `each` bytes.
    """

    def __init__(self, most: int = 256 << 20, share: float = 1.0, each: int = 0) -> None:
        self._most, self._own, self._size = most, max(int(most * share), each), 0
        self._by_peer: Counter[str] = Counter()

    def add(self, size: int, peer: str = "") -> None:
        self._size += size
        self._by_peer[peer] += size
        if self._size > self._most:
            raise errors.Overloaded(f"more than {self._most >> 20} MiB of requests are arriving; retry in a second")
        if self._by_peer[peer] > self._own:
            raise errors.Overloaded(
                f"more than {self._own >> 20} MiB of requests are arriving from your address; retry in a second"
            )

    def done(self, size: int, peer: str = "") -> None:
        self._size -= size
        self._by_peer[peer] -= size
        if not self._by_peer[peer]:
            del self._by_peer[peer]


class Call(msgspec.Struct, eq=False):
    """One HTTP request. `body` reads the body on demand, up to `max_body` bytes."""

    scope: Scope
    receive: Receive
    params: tuple[str, ...]
    max_body: int
    incoming: IncomingBytes = msgspec.field(default_factory=IncomingBytes)
    """Bound on all bodies that are arriving."""
    memory: AnswerMemory = msgspec.field(default_factory=AnswerMemory)
    pending: PendingAnswer | None = None
    """Set if the answer carries claimed messages or reserves memory."""
    received: bool = False
    """Whether the whole request has arrived. Only then may its effects have begun."""
    queue: str = ""
    """The queue of the request, for logs and metrics. A route with `{queue}` in its path need not set it."""
    messages: int = 0
    """How many messages the request pushed, got or settled, for logs and metrics."""
    _query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """Arguments of the query string. The last value of a repeated name counts."""
        if self._query is None:
            text = self.scope["query_string"].decode("latin-1")
            try:
                self._query = dict(parse_qsl(text, keep_blank_values=True, errors="strict")) if text else {}
            except UnicodeDecodeError:
                raise errors.BadInput("the query is not valid UTF-8") from None
        return self._query

    @property
    def host(self) -> str:
        """The client's address."""
        client = self.scope.get("client")
        return str(client[0]) if client else "local"

    @property
    def peer(self) -> str:
        """The client's address and port, which identify its connection."""
        client = self.scope.get("client")
        return f"{client[0]}:{client[1]}" if client else "local"

    @property
    def address(self) -> str:
        """The address whose share of the server this request uses."""
        return counted(self.host)

    def header(self, name: bytes) -> bytes:
        """The first header of that lower-case name, or an empty value."""
        for key, value in self.scope["headers"]:
            if key == name:
                return bytes(value)
        return b""

    async def body(self) -> bytes:
        declared = self.header(b"content-length")
        if declared.isdigit() and int(declared) > self.max_body:
            raise BodyTooLarge(f"the body has {int(declared)} bytes; the limit is {self.max_body}")
        exchange = self.scope.get(EXCHANGE)
        whole: bytes | None = exchange.body() if exchange is not None else None
        if whole is None:
            whole = await self._receive_body()
        self._check(len(whole))
        self.received = True
        return whole

    async def _receive_body(self) -> bytes:
        """Receives the body piece by piece. Enforces a minimum transfer rate and the bound on all arriving bodies."""
        pieces: list[bytes] = []
        size, end, address = 0, time.monotonic() + BODY_PATIENCE, self.address
        try:
            while True:
                message = await self._next(end + size / SLOWEST_BODY)
                piece = bytes(message.get("body", b""))
                size += len(piece)
                self.incoming.add(len(piece), address)
                self._check(size)
                pieces.append(piece)
                if not message.get("more_body", False):
                    return b"".join(pieces)
        finally:
            self.incoming.done(size, address)

    def _check(self, size: int) -> None:
        if size > self.max_body:
            raise BodyTooLarge(f"the body has more than {self.max_body} bytes, which is the limit")

    async def _next(self, until: float) -> MutableMapping[str, Any]:
        try:
            async with asyncio.timeout(max(0.0, min(BODY_PATIENCE, until - time.monotonic()))):
                message = await self.receive()
        except TimeoutError:
            raise BodyTooSlow("the body did not arrive in time") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        return message

    async def read(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The decoded body."""
        return parse(decoder, await self.body())

    @property
    def disconnected(self) -> bool:
        """Whether the connection is known to be closed."""
        exchange = self.scope.get(EXCHANGE)
        return exchange is not None and exchange.disconnected

    def begin_answer(self) -> PendingAnswer:
        """Begins an answer that may be large. Raises `AnswersFull` while other answers fill the memory."""
        address = self.address
        self.memory.check(address)
        self.pending = PendingAnswer(self.memory, address)
        return self.pending

    def begin_claim(self, most_bytes: int | None) -> tuple[int, Gate]:
        """Begins the answer to a claim of at most `most_bytes`.

        Returns the bound on the claim's bytes, and the gate of the answer memory for `AsyncBroker.claim`. Raises
        `ClientDisconnected` if the client has left: then nothing is claimed.
        """
        pending = self.begin_answer()
        if self.disconnected:
            raise ClientDisconnected
        return pending.bound(most_bytes), pending.gate

    def keep_claim(self, broker: AsyncBroker, claimed: Claimed) -> None:
        """Releases the claim if its answer is lost. Raises `ClientDisconnected` if the client has left."""
        assert self.pending is not None
        self.pending.keep(broker, claimed)
        if self.disconnected:
            raise ClientDisconnected

    async def reserve(self, size: int) -> None:
        """Begins an answer of at most `size` bytes and waits until the answer memory has room for it."""
        room = self.begin_answer().gate(size)
        if room is not None:
            await room

    def grow(self, size: int) -> bool:
        """Holds answer memory for `size` bytes in all, without waiting. False if other answers need the memory."""
        if self.pending is None:
            self.pending = PendingAnswer(self.memory, self.address)
        return self.pending.grow(size)

    def hold(self, size: int) -> None:
        """Holds answer memory for `size` bytes in all. Use it for an answer that must not be refused any more."""
        if self.pending is None:
            self.pending = PendingAnswer(self.memory, self.address)
        self.pending.hold(size)

    def unless_gone(self, work: Awaitable[T]) -> Awaitable[T]:
        """Result of the work. If the client disconnects first, cancels the work and raises `ClientDisconnected`."""
        exchange = self.scope.get(EXCHANGE)
        return self._race_asgi(work) if exchange is None else self._race_exchange(exchange, work)

    async def _race_asgi(self, work: Awaitable[T]) -> T:
        """Watches for the disconnect with ASGI messages, which needs two tasks."""
        task = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self._receive_disconnect())
        try:
            await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
                raise ClientDisconnected
            return task.result()
        finally:
            leaving.cancel()
            task.cancel()

    async def _race_exchange(self, exchange: Any, work: Awaitable[T]) -> T:
        """Watches for the disconnect without further tasks, because thousands of requests may wait."""
        me = asyncio.current_task()
        assert me is not None
        exchange.on_disconnect(me.cancel)
        try:
            return await work
        except asyncio.CancelledError:
            if exchange.disconnected:
                me.uncancel()
                raise ClientDisconnected from None
            raise
        finally:
            exchange.on_disconnect(None)

    async def _receive_disconnect(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass


def with_plus(time: str) -> str:
    """Restores the plus of a time zone (`+01:00`), which an unquoted query turns into a space."""
    return _LOST_PLUS.sub("+", time)


def parse(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decodes a body. Raises `BadInput` for invalid UTF-8 also in parts that the decoder passes through."""
    try:
        if not body.isascii():
            body.decode()
        return decoder.decode(body)
    except msgspec.ValidationError as problem:
        raise errors.BadInput(f"the body is invalid: {problem}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise errors.BadInput(f"the body is not valid JSON: {problem}") from None
