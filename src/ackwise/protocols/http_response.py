"""HTTP response for all protocols: answers, routes, and the status of each error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

import msgspec

from ackwise.core import errors
from ackwise.protocols.http_request import BadHead, BodyTooSlow, Call
from ackwise.protocols.route_docs import RouteDoc

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


STATUS: dict[str, int] = {
    "forbidden_host": 403,
    "forbidden_origin": 403,
    "no_such_route": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "precondition_failed": 412,
    "unsupported_media_type": 415,
    "body_too_large": 413,
    "body_too_slow": 408,
    "payload_too_large": 413,
    "statement_limit": 422,
    "overloaded": 429,
    "missing_extra": 501,
    "answers_full": 503,
    "draining": 503,
    "maintenance": 503,
    "store_unavailable": 503,
    "store_locked": 503,
    "store_full": 507,
    "store_read_only": 503,
}


def status_of(problem: errors.AckwiseError) -> int:
    """HTTP status of an error: by its code, else by its class."""
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
