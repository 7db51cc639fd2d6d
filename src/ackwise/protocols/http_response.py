"""HTTP response for all protocols: answers, routes, and the status of each error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

import msgspec

from ackwise.core import errors
from ackwise.protocols.http_request import BadHead, BodyTooSlow, Call
from ackwise.protocols.route_docs import RouteDoc
from ackwise.wire.http_status import status_of

Headers = tuple[tuple[bytes, bytes], ...]
JSON = b"application/json"
ARROW = b"application/vnd.apache.arrow.stream"
encode = msgspec.json.Encoder().encode


class Answer(msgspec.Struct, eq=False):
    """Answer to a request. The server sends no body with status 204. `close` ends the connection afterwards."""

    body: bytes = b""
    status: int = 200
    content_type: bytes = JSON
    headers: Headers = ()
    close: bool = False


class StreamedAnswer(Answer, kw_only=True, eq=False):
    """Answer in pieces: `body` first, then the `rest` as fast as the client reads."""

    rest: AsyncIterator[bytes]


def answer(value: object, status: int = 200) -> Answer:
    """Answer with the value as JSON."""
    return Answer(encode(value), status)


class ForbiddenHost(errors.AckwiseError):
    """The server does not accept this host name."""

    code = "forbidden_host"


class ForbiddenOrigin(errors.AckwiseError):
    """A web page of another origin sent this request."""

    code = "forbidden_origin"


CLOSING_CODES = frozenset({BodyTooSlow.code, BadHead.code})
"""Errors after which the server closes the connection: the client's next bytes may not be a request."""


class NoSuchRoute(errors.AckwiseError):
    """The path does not exist."""

    code = "no_such_route"


class MethodNotAllowed(errors.AckwiseError):
    """The path exists but does not allow this method."""

    code = "method_not_allowed"


Handler = Callable[[Call], Awaitable[Answer]]


class Route(NamedTuple):
    """Method, path and handler. The path has its parameters in braces, each one percent-decoded segment.

    A `page` is HTML and changes nothing, so links of other web sites may lead to it. `doc` is what `/openapi.json` says
    about the route. A page needs none.
    """

    method: str
    path: str
    handler: Handler
    page: bool = False
    doc: RouteDoc | None = None


def retry_headers(problem: errors.AckwiseError, status: int) -> tuple[tuple[bytes, bytes], ...]:
    """`Retry-After` for errors that a retry may solve."""
    return ((b"retry-after", str(problem.details.get("retry_after", 1)).encode()),) if status in (429, 503) else ()


ErrorWriter = Callable[[errors.AckwiseError | None], Answer]
"""Writes an error as a protocol's answer. None stands for an unexpected exception."""


def error_answer(problem: errors.AckwiseError | None) -> Answer:
    """`{"error", "code"}`, with `Retry-After` if a retry may help."""
    if problem is None:
        return answer({"error": "internal error; the server's log has more", "code": "internal"}, 500)
    status = status_of(problem)
    body = encode({"error": problem.message, "code": problem.code})
    return Answer(body, status, headers=retry_headers(problem, status), close=problem.code in CLOSING_CODES)
