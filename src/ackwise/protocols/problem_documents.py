"""Problem documents (RFC 9457): errors as `application/problem+json`, with a type and a title for each code."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core.errors import AckwiseError
from ackwise.protocols.http_response import CLOSING_CODES, Answer, retry_headers
from ackwise.wire.http_status import status_of

PROBLEM = b"application/problem+json"
TYPES = "/docs/errors#"
"""Start of the URI of a problem type. The server has a page there, and docs/reference/errors.md lists the codes."""
INTERNAL = "internal"
INTERNAL_TEXT = "internal error; the server's log has more"


class Problem(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Error of a resource. `type` identifies the code, `detail` explains this occurrence."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    details: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class NativeError(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Error of the other native routes."""

    error: str
    code: str
    details: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    type: str
    title: str
    status: int


class UnroutedProblem(NativeError, kw_only=True):
    """Error of a native path before its route is known: a problem document that has `error`, too."""

    detail: str


_encode = msgspec.json.Encoder(enc_hook=str).encode


def title_of(kind: type[AckwiseError]) -> str:
    """The title of a class of errors: the start of its docstring."""
    text = (kind.__doc__ or kind.code).strip().partition(";")[0].partition(". ")[0].rstrip(".")
    code, colon, rest = text.partition(": ")
    if colon and " " not in code:
        text = rest
    return text[0].upper() + text[1:]


def type_of(code: str) -> str:
    return f"{TYPES}{code}"


class _Facts(msgspec.Struct):
    """What each form of an error tells."""

    text: str
    code: str
    title: str
    status: int
    details: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


def _facts(problem: AckwiseError | None) -> _Facts:
    if problem is None:
        return _Facts(INTERNAL_TEXT, INTERNAL, "Internal error", 500)
    return _Facts(
        problem.message, problem.code, title_of(type(problem)), status_of(problem), problem.details or msgspec.UNSET
    )


def _answer(problem: AckwiseError | None, body: msgspec.Struct, status: int, content_type: bytes) -> Answer:
    headers = () if problem is None else retry_headers(problem, status)
    return Answer(_encode(body), status, content_type, headers, problem is not None and problem.code in CLOSING_CODES)


def problem_answer(problem: AckwiseError | None) -> Answer:
    """Answer of a resource. None stands for an unexpected exception."""
    facts = _facts(problem)
    body = Problem(
        type=type_of(facts.code),
        title=facts.title,
        status=facts.status,
        detail=facts.text,
        code=facts.code,
        details=facts.details,
    )
    return _answer(problem, body, facts.status, PROBLEM)


def native_error_answer(problem: AckwiseError | None) -> Answer:
    """Answer of a native route that is no resource: `error` and `code`, and a problem's type, title and status."""
    facts = _facts(problem)
    body = NativeError(
        error=facts.text,
        code=facts.code,
        details=facts.details,
        type=type_of(facts.code),
        title=facts.title,
        status=facts.status,
    )
    return _answer(problem, body, facts.status, b"application/json")


def unrouted_answer(problem: AckwiseError | None) -> Answer:
    """Answer to a native path before its route is known, for example with a wrong method."""
    facts = _facts(problem)
    body = UnroutedProblem(
        error=facts.text,
        code=facts.code,
        details=facts.details,
        type=type_of(facts.code),
        title=facts.title,
        status=facts.status,
        detail=facts.text,
    )
    return _answer(problem, body, facts.status, PROBLEM)
