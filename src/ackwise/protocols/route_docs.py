"""Documentation of a route: what `/openapi.json` says about its body, its query, its answers and its errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from ackwise.protocols.http_response import Route

COMMON_ERRORS = (400, 403, 408, 413, 429, 500, 503, 507)
"""Statuses with which every route may refuse a request: bad input, a foreign host or origin, limits, the store."""


class RouteDoc(msgspec.Struct, frozen=True, kw_only=True):
    """What a route reads and answers. Types are structs, or other types for which msgspec writes a JSON schema.

    A tuple of types stands for any one of them. `bytes` stands for a body or an answer that is no JSON.
    """

    summary: str
    tag: str
    body: Any = None
    """Type of the JSON body. None: the route reads no body."""
    body_required: bool = True
    body_types: tuple[str, ...] = ("application/json",)
    query: type[msgspec.Struct] | None = None
    """Struct whose fields are the parameters of the query. None: the route has no parameters."""
    headers: Mapping[str, str] = {}
    """Request headers with their meaning."""
    answers: Mapping[int, Any] = msgspec.field(default_factory=lambda: {200: dict[str, Any]})
    """Type of the answer by status. None: an answer without a body."""
    answer_types: tuple[str, ...] = ("application/json",)
    errors: tuple[int, ...] = ()
    """Statuses of refusals beyond `COMMON_ERRORS`."""
    error: Any = dict[str, Any]
    """Type of an error's body."""
    error_type: str = "application/json"
    internal: bool = False
    """Whether only our own client should use the route. It may change with the client."""


def documented(routes: Iterable[Route], docs: Mapping[str, RouteDoc]) -> list[Route]:
    """Routes with the documentation that `docs` has for `METHOD /path`. Other routes stay as they are."""
    return [route._replace(doc=docs.get(f"{route.method} {route.path}", route.doc)) for route in routes]
