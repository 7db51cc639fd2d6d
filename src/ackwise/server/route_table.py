"""Route table: finds the handler of a method and path."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from ackwise.core.errors import BadInput
from ackwise.protocols.http_response import Handler, Route

Match = tuple[Handler, tuple[str, ...], str]
"""A handler, the path's parameters, and the pattern of the route."""
MOST_REMEMBERED = 10_000
LONGEST_REMEMBERED = 200


class RouteTable:
    """Routes by path. A path that the table remembers needs one look-up. Any other path needs a walk over its
    segments."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._exact: dict[tuple[str, bytes], Match] = {}
        self._root = _Node()
        self._pages: set[Handler] = set()
        for route in routes:
            if route.page:
                self._pages.add(route.handler)
            segments = route.path.strip("/").split("/")
            if "{" not in route.path:
                self._exact[route.method, route.path.encode()] = (route.handler, (), route.path)
            self._root.add(segments, route)
        self.known = self._exact.copy()
        """Matches by method and path: all paths without parameters, and recent paths with them."""

    def find(self, method: str, raw_path: bytes) -> Match | frozenset[str]:
        """The match, or the methods that the path allows (none for an unknown path)."""
        known = self.known.get((method, raw_path))
        if known is not None:
            return known
        segments = [_decode(segment) for segment in raw_path.decode("ascii", "replace").strip("/").split("/")]
        allowed: set[str] = set()
        for routes, params in self._root.walk(segments, ()):
            if (route := routes.get(method)) is not None:
                match = route.handler, params, route.path
                self._remember(method, raw_path, match)
                return match
            allowed |= set(routes)
        return frozenset(allowed)

    def is_page(self, raw_path: bytes) -> bool:
        """Whether a page answers a GET of the path. A page changes nothing."""
        match = self.find("GET", raw_path)
        return isinstance(match, tuple) and match[0] in self._pages

    def _remember(self, method: str, raw_path: bytes, match: Match) -> None:
        if len(self.known) >= MOST_REMEMBERED:
            self.known = self._exact.copy()
        if len(raw_path) <= LONGEST_REMEMBERED:
            self.known[method, raw_path] = match


def _decode(segment: str) -> str:
    if "%" not in segment:
        return segment
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise BadInput("the path is not valid UTF-8") from None


class _Node:
    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.routes: dict[str, Route] = {}

    def add(self, segments: list[str], route: Route) -> None:
        if not segments:
            self.routes[route.method] = route
            return
        if segments[0].startswith("{"):
            self.parameter = self.parameter or _Node()
            self.parameter.add(segments[1:], route)
        else:
            self.fixed.setdefault(segments[0], _Node()).add(segments[1:], route)

    def walk(self, segments: list[str], params: tuple[str, ...]) -> Iterable[tuple[dict[str, Route], tuple[str, ...]]]:
        """Yields the routes of matching paths by method. A fixed segment comes before a parameter."""
        if not segments:
            if self.routes:
                yield self.routes, params
            return
        if segments[0] in self.fixed:
            yield from self.fixed[segments[0]].walk(segments[1:], params)
        if self.parameter is not None and segments[0]:
            yield from self.parameter.walk(segments[1:], (*params, segments[0]))
