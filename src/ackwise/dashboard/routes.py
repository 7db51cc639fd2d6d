"""Routes of the pages: method, path, function and the right that a change needs."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from starlette.responses import Response

from ackwise.core.errors import BadInput

if TYPE_CHECKING:
    from ackwise.dashboard.request import PageRequest

Handler = Callable[["PageRequest"], Awaitable[Response]]
READ, CHANGE = "read", "change"


class PageRoute(NamedTuple):
    """Method, path below the mount, function, and the right that `guard.py` asks for."""

    method: str
    path: str
    handler: Handler
    right: str = READ


class RouteMatch(NamedTuple):
    """A route with the parameters of a path."""

    route: PageRoute
    params: dict[str, str]


def get(path: str, handler: Handler) -> PageRoute:
    """Route of a page. It changes nothing, so links of other web sites may lead to it."""
    return PageRoute("GET", path, handler)


def post(path: str, handler: Handler, right: str = CHANGE) -> PageRoute:
    """Route of a change. Its form carries a token."""
    return PageRoute("POST", path, handler, right)


class PageTable:
    """Finds the route of a method and a path that is still percent-encoded."""

    def __init__(self, routes: Iterable[PageRoute]) -> None:
        self._routes = [(re.compile(_pattern(route.path)), route) for route in routes]

    def find(self, method: str, path: str) -> RouteMatch | frozenset[str]:
        """The match, or the methods that the path allows (none for an unknown path)."""
        allowed = set()
        for pattern, route in self._routes:
            if (match := pattern.fullmatch(path)) is None:
                continue
            if route.method == method:
                return RouteMatch(route, {name: decode(text) for name, text in match.groupdict().items()})
            allowed.add(route.method)
        return frozenset(allowed)


def _pattern(path: str) -> str:
    """Regular expression of a route's path. A slash at the end is optional."""
    parts = re.split(r"\{(\w+)\}", path.rstrip("/"))
    texts = (f"(?P<{part}>[^/]+)" if at % 2 else re.escape(part) for at, part in enumerate(parts))
    return "".join(texts) + "/?"


def encode(segment: str) -> str:
    """A name as one segment of a path.

    Browsers resolve `.` and `..`, also in their percent-encoded form, so these names get a tilde in front.
    """
    return quote("~" + segment if segment in (".", "..") or segment.startswith("~") else segment, safe="~")


def decode(segment: str) -> str:
    """The name that `encode` wrote."""
    try:
        text = unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise BadInput("the path is not valid UTF-8") from None
    return text.removeprefix("~")
