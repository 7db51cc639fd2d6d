"""Answers of resources: problem documents, entity tags, `If-Match`, and query parameters as structs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.versions import ANY
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Handler, Route, encode
from ackwise.protocols.problem_documents import PROBLEM, Problem, problem_answer
from ackwise.protocols.route_docs import RouteDoc

T = TypeVar("T")
NO_VERSION = "-"
"""A version that no object has."""
_TAG = re.compile(r'"(?P<tag>[\x21\x23-\x7e]{0,200})"')
_VERSION = re.compile(r"[0-9a-f]{1,64}")
IF_MATCH = {"If-Match": "the ETag of the version that you change. Without it the change applies to any version"}


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A query without parameters."""


def read_query(call: Call, kind: type[T]) -> T:
    """The query as a struct. Raises `BadInput` for an unknown parameter and for a value outside its bounds."""
    try:
        return msgspec.convert(call.query, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise BadInput(f"the query is invalid: {problem}") from None


def check_no_query(call: Call) -> None:
    if call.query:
        read_query(call, NoQuery)


def if_match(call: Call) -> str:
    """The version that the request names in `If-Match`. Without the header any version of an existing object."""
    text = call.header(b"if-match").decode("latin-1").strip()
    if text in ("", ANY):
        return ANY
    match = _TAG.fullmatch(text)
    if match is None:
        raise BadInput(f'If-Match must be one strong ETag such as "1f0c", or *, not {text!r:.60}')
    return match["tag"] if _VERSION.fullmatch(match["tag"]) else NO_VERSION


def refuse_if_match(call: Call, why: str) -> None:
    if call.header(b"if-match"):
        raise BadInput(f"If-Match is not possible here: {why}")


def path(*segments: str) -> str:
    """The path of a resource, with its names percent-encoded."""
    return "/v1/" + "/".join(quote(segment, safe="") for segment in segments)


def resource(value: object, *, version: str | None = None, location: str | None = None) -> Answer:
    """200 with the value, or 201 if the request created the resource at `location`."""
    headers = []
    if version is not None:
        headers.append((b"etag", b'"%b"' % version.encode()))
    if location is not None:
        headers.append((b"location", location.encode()))
    return Answer(encode(value), 200 if location is None else 201, headers=tuple(headers))


NO_CONTENT = 204


def removed() -> Answer:
    return Answer(b"", NO_CONTENT)


def resource_doc(
    tag: str,
    summary: str,
    *,
    answers: Mapping[int, Any],
    errors: tuple[int, ...] = (),
    body: Any = None,
    body_required: bool = True,
    query: type[msgspec.Struct] | None = None,
    versioned: bool = False,
) -> RouteDoc:
    """Documentation of a resource's route. A `versioned` route takes `If-Match`."""
    return RouteDoc(
        summary=summary,
        tag=tag,
        answers=answers,
        errors=(*errors, 412) if versioned else errors,
        body=body,
        body_required=body_required,
        query=query,
        headers=IF_MATCH if versioned else {},
        error=Problem,
        error_type=PROBLEM.decode(),
    )


def as_resource(route: Route) -> Route:
    """The route with errors as problem documents. A route without documented parameters refuses a query."""
    return route._replace(handler=_with_problems(route.handler, takes_query=_takes_query(route)))


def _takes_query(route: Route) -> bool:
    return route.doc is not None and route.doc.query is not None


def _with_problems(handler: Handler, *, takes_query: bool) -> Handler:
    async def handle(call: Call) -> Answer:
        try:
            if not takes_query:
                check_no_query(call)
            return await handler(call)
        except AckwiseError as problem:
            return problem_answer(problem)

    return handle
