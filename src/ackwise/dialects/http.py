"""A request and its answer, as every HTTP face sees them: plain ASGI, bytes in and bytes out."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec

from ackwise.core import errors
from ackwise.dialects.handover import AnswerMemory, Handover

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

Headers = tuple[tuple[bytes, bytes], ...]

JSON = b"application/json"
ARROW = b"application/vnd.apache.arrow.stream"
BODY_PATIENCE = 30.0
"""How long the next piece of a body may take to arrive, and the whole of a small one."""
SLOWEST_BODY = 32 << 10
"""Bytes in a second: what a large body has to keep up after that."""

EXCHANGE = "ackwise.exchange"
"""The key of a scope under which our server's protocol offers a shorter way than ASGI's messages."""

T = TypeVar("T")
_LOST_PLUS = re.compile(r" (?=\d\d:?\d\d$)")
encode = msgspec.json.Encoder().encode


class Answer:
    """Answer to a request. A body with 204 is never sent. `close` ends the connection after the answer."""

    __slots__ = ("body", "close", "content_type", "headers", "status")

    def __init__(
        self,
        body: bytes = b"",
        status: int = 200,
        content_type: bytes = JSON,
        headers: Headers = (),
    ) -> None:
        self.body, self.status, self.content_type, self.headers = body, status, content_type, headers
        self.close = False


class Streamed(Answer):
    """An answer in pieces: `body` goes first, the `rest` follows as fast as the client reads."""

    __slots__ = ("rest",)

    def __init__(
        self,
        body: bytes,
        rest: AsyncIterator[bytes],
        content_type: bytes = JSON,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(body, 200, content_type, headers)
        self.rest = rest


def answer(value: object, status: int = 200) -> Answer:
    """Anything msgspec can write, as JSON."""
    return Answer(encode(value), status)


class Gone(Exception):
    """The client went away; there is nobody to answer."""


class BodyTooLarge(errors.BadInput):
    """The body is larger than the server takes."""

    code = "body_too_large"


class BodyTooSlow(errors.BadInput):
    """The body did not arrive in time."""

    code = "body_too_slow"


class BadHead(errors.BadInput):
    """The request's head is malformed."""

    code = "bad_request"


class ForbiddenHost(errors.AckwiseError):
    """The server does not answer under this host name."""

    code = "forbidden_host"


class ForbiddenOrigin(errors.AckwiseError):
    """A web page of another origin sent this request."""

    code = "forbidden_origin"


CLOSING = frozenset({BodyTooSlow.code, BadHead.code})
"""Refusals after which the server closes the connection: the client's next bytes may not be a request."""


class NoSuchRoute(errors.AckwiseError):
    """There is nothing at this path."""

    code = "no_such_route"


class MethodNotAllowed(errors.AckwiseError):
    """The path is known, but not so."""

    code = "method_not_allowed"


class Intake:
    """Bodies that are on their way in: how much of them there may be at once."""

    def __init__(self, most: int = 256 << 20) -> None:
        self._most, self._size = most, 0

    def add(self, size: int) -> None:
        self._size += size
        if self._size > self._most:
            raise errors.Overloaded(f"{self._most >> 20} MiB of requests are on their way in; try again in a second")

    def done(self, size: int) -> None:
        self._size -= size


class Call:
    """One request. The body is read when it is asked for, and only as far as it is allowed to be."""

    __slots__ = ("_intake", "_memory", "_query", "_receive", "handover", "max_body", "params", "scope", "taken")

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        params: tuple[str, ...],
        max_body: int,
        intake: Intake | None = None,
        memory: AnswerMemory | None = None,
    ) -> None:
        self.scope, self._receive, self.params, self.max_body = scope, receive, params, max_body
        self._intake = intake or Intake()
        self._memory = memory or AnswerMemory()
        self.handover: Handover | None = None
        """The handover of this request's answer, if the answer carries claimed messages."""
        self.taken = False
        """Whether the whole request is here: from then on something may be done about it."""
        self._query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """The query string; of a name that is given twice the last counts."""
        if self._query is None:
            text = self.scope["query_string"].decode("latin-1")
            try:
                self._query = dict(parse_qsl(text, keep_blank_values=True, errors="strict")) if text else {}
            except UnicodeDecodeError:
                raise errors.BadInput("the query is not valid UTF-8") from None
        return self._query

    @property
    def host(self) -> str:
        """The machine that asks."""
        client = self.scope.get("client")
        return client[0] if client else "local"

    @property
    def peer(self) -> str:
        """Who asks: a client's address and port, which a connection keeps."""
        client = self.scope.get("client")
        return f"{client[0]}:{client[1]}" if client else "local"

    def header(self, name: bytes) -> bytes:
        """The first header of that (lower-case) name, empty when there is none."""
        for key, value in self.scope["headers"]:
            if key == name:
                return bytes(value)
        return b""

    async def body(self) -> bytes:
        declared = self.header(b"content-length")
        if declared.isdigit() and int(declared) > self.max_body:
            raise BodyTooLarge(f"the body has {int(declared)} bytes; at most {self.max_body} are taken")
        exchange = self.scope.get(EXCHANGE)
        whole: bytes | None = exchange.body() if exchange is not None else None
        if whole is None:
            whole = await self._gathered()
        self._check(len(whole))
        self.taken = True
        return whole

    async def _gathered(self) -> bytes:
        """The body piece by piece, at a rate that is not a joke, and all bodies together within bounds."""
        pieces: list[bytes] = []
        size, end = 0, time.monotonic() + BODY_PATIENCE
        try:
            while True:
                message = await self._next(end + size / SLOWEST_BODY)
                piece = bytes(message.get("body", b""))
                size += len(piece)
                self._intake.add(len(piece))
                self._check(size)
                pieces.append(piece)
                if not message.get("more_body", False):
                    return b"".join(pieces)
        finally:
            self._intake.done(size)

    def _check(self, size: int) -> None:
        if size > self.max_body:
            raise BodyTooLarge(f"the body has more than the {self.max_body} bytes that are taken")

    async def _next(self, until: float) -> MutableMapping[str, Any]:
        try:
            async with asyncio.timeout(max(0.0, min(BODY_PATIENCE, until - time.monotonic()))):
                message = await self._receive()
        except TimeoutError:
            raise BodyTooSlow("the body did not arrive in time") from None
        if message["type"] == "http.disconnect":
            raise Gone
        return message

    async def read(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The body as what the decoder makes of it."""
        return parse(decoder, await self.body())

    @property
    def gone(self) -> bool:
        """Whether the connection is known to be closed: an answer would reach nobody."""
        exchange = self.scope.get(EXCHANGE)
        return exchange is not None and exchange.gone

    def hand_over(self) -> Handover:
        """Begin an answer that may be large. Raises `AnswersFull` while other answers fill the memory."""
        self._memory.check(self.host)
        self.handover = Handover(self._memory, self.host)
        return self.handover

    async def reserve(self, size: int) -> None:
        """Begin an answer of at most so many bytes; wait for memory before anything is read for it."""
        room = self.hand_over().gate(size)
        if room is not None:
            await room

    def grow(self, size: int) -> bool:
        """Hold answer memory for so many bytes in all, without waiting. False when other answers need the memory."""
        if self.handover is None:
            self.handover = Handover(self._memory, self.host)
        return self.handover.grow(size)

    def unless_gone(self, work: Awaitable[T]) -> Awaitable[T]:
        """The work's result; when the client goes away first the work is cancelled, and `Gone` raised."""
        exchange = self.scope.get(EXCHANGE)
        return self._listening(work) if exchange is None else self._while_there(exchange, work)

    async def _listening(self, work: Awaitable[T]) -> T:
        """By ASGI's own means, which take two tasks that watch each other."""
        task = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self._leaves())
        try:
            await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
                raise Gone
            return task.result()
        finally:
            leaving.cancel()
            task.cancel()

    async def _while_there(self, exchange: Any, work: Awaitable[T]) -> T:
        """The same without any more tasks: thousands may wait."""
        me = asyncio.current_task()
        assert me is not None
        exchange.when_gone(me.cancel)
        try:
            return await work
        except asyncio.CancelledError:
            if exchange.gone:
                me.uncancel()
                raise Gone from None
            raise
        finally:
            exchange.when_gone(None)

    async def _leaves(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def with_plus(time: str) -> str:
    """In a query a plus that nobody quoted is a space: `+01:00` at the end of a time."""
    return _LOST_PLUS.sub("+", time)


def parse(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """What the decoder makes of a body. Parts that are passed through as they are have to be sound as well."""
    try:
        if not body.isascii():
            body.decode()
        return decoder.decode(body)
    except msgspec.ValidationError as problem:
        raise errors.BadInput(f"the body is not as expected: {problem}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise errors.BadInput(f"the body is not valid JSON: {problem}") from None


Handler = Callable[[Call], Awaitable[Answer]]


class Route(NamedTuple):
    """`path` has its parameters in braces; each is one segment, percent-decoded.

    A `page` is HTML and changes nothing, so a link on any web site may lead to it.
    """

    method: str
    path: str
    handler: Handler
    page: bool = False


STATUS: dict[str, int] = {
    "forbidden_host": 403,
    "forbidden_origin": 403,
    "no_such_route": 404,
    "method_not_allowed": 405,
    "body_too_large": 413,
    "body_too_slow": 408,
    "payload_too_large": 413,
    "statement_limit": 422,
    "overloaded": 429,
    "answers_full": 503,
    "draining": 503,
    "store_unavailable": 503,
    "store_locked": 503,
    "store_full": 507,
    "store_read_only": 503,
}


def status_of(problem: errors.AckwiseError) -> int:
    """The status that says most about an error."""
    known = STATUS.get(problem.code)
    if known is not None:
        return known
    if isinstance(problem, errors.BadInput):
        return 400
    if isinstance(problem, errors.NotFound):
        return 404
    if isinstance(problem, errors.Conflict):
        return 409
    return 503 if isinstance(problem, errors.StoreError) else 500


def retry_later(problem: errors.AckwiseError, status: int) -> tuple[tuple[bytes, bytes], ...]:
    """When to come again, where that may help."""
    return ((b"retry-after", str(problem.details.get("retry_after", 1)).encode()),) if status in (429, 503) else ()


Refuse = Callable[[errors.AckwiseError | None], Answer]
"""How a face spells an error; None is one that nobody expected."""


def refusal(problem: errors.AckwiseError | None) -> Answer:
    """`{"error", "code"}`, and when to come again where that is known."""
    if problem is None:
        return answer({"error": "internal error; the server's log has more", "code": "internal"}, 500)
    status = status_of(problem)
    body = encode({"error": problem.message, "code": problem.code})
    return Answer(body, status, headers=retry_later(problem, status))
