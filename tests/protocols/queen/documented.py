"""Compares answers of Queen's routes with the structs in the documentation of the routes."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ackwise.protocols.queen.route_docs import DOCS, QueenError
from ackwise.protocols.route_docs import RouteDoc

_PARAMETER = re.compile(r"\{\w+\}")


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(_PARAMETER.sub("[^/]+", path))


_ROUTES = sorted(DOCS.items(), key=lambda route: route[0].count("{"))
_PATTERNS = [(_pattern(name), doc) for name, doc in _ROUTES]
"""Routes with fewer parameters come first, because their segments are names."""


def doc_of(method: str, path: str) -> RouteDoc | None:
    """Documentation of the route that serves a path. None for routes of other protocols and for pages."""
    return next((doc for pattern, doc in _PATTERNS if pattern.fullmatch(f"{method} {path}")), None)


def check_documented(method: str, path: str, status: int, body: Any) -> None:
    """Fails unless an answer has exactly the fields of a struct that its route documents."""
    doc = doc_of(method, path.partition("?")[0])
    if doc is None:
        return
    if status >= 400:
        if body is not None:
            msgspec.convert(body, QueenError)
        return
    assert status in doc.answers, f"{method} {path} answered {status}, which its documentation does not have"
    kinds = doc.answers[status]
    problems = [_difference(body, kind) for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
    assert None in problems, f"{method} {path} does not answer as documented: {'; '.join(filter(None, problems))}"


def _difference(body: Any, kind: Any) -> str | None:
    """How a body differs from its type. None if it does not."""
    if kind is None:
        return None if body is None else "a body that is not documented"
    try:
        known = msgspec.to_builtins(msgspec.convert(body, kind))
    except msgspec.ValidationError as problem:
        return str(problem)
    return None if known == body else f"fields that are not documented in {body!r:.600}"
