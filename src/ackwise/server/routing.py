"""Which handler answers a path. Segments are split before they are decoded, so a name may contain any character."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from ackwise.core.errors import BadInput
from ackwise.dialects.http import Handler, Route

Found = tuple[Handler, tuple[str, ...]]
MOST_REMEMBERED = 10_000
LONGEST_REMEMBERED = 200


class Table:
    """Exact paths are one look-up; the others a walk down their segments."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._exact: dict[bytes, dict[str, Handler]] = {}
        self._root = _Node()
        self._lately: dict[tuple[str, bytes], Found] = {}
        """What paths with parameters led to: clients ask for the same few again and again."""
        self._pages: set[Handler] = set()
        for route in routes:
            if route.page:
                self._pages.add(route.handler)
            segments = route.path.strip("/").split("/")
            if "{" not in route.path:
                self._exact.setdefault(route.path.encode(), {})[route.method] = route.handler
            self._root.add(segments, route.method, route.handler)

    def find(self, method: str, raw_path: bytes) -> Found | frozenset[str]:
        """The handler with its parameters, or the methods that the path knows instead (none: unknown path)."""
        handlers = self._exact.get(raw_path)
        if handlers is not None and method in handlers:
            return handlers[method], ()
        known = self._lately.get((method, raw_path))
        if known is not None:
            return known
        segments = [_decode(segment) for segment in raw_path.decode("ascii", "replace").strip("/").split("/")]
        allowed: set[str] = set()
        for handlers, params in self._root.walk(segments, ()):
            if method in handlers:
                self._remember(method, raw_path, (handlers[method], params))
                return handlers[method], params
            allowed |= set(handlers)
        return frozenset(allowed)

    def is_page(self, raw_path: bytes) -> bool:
        """Whether a GET of the path is answered by a page, which changes nothing."""
        found = self.find("GET", raw_path)
        return isinstance(found, tuple) and found[0] in self._pages

    def _remember(self, method: str, raw_path: bytes, found: Found) -> None:
        if len(self._lately) >= MOST_REMEMBERED:
            self._lately.clear()
        if len(raw_path) <= LONGEST_REMEMBERED:
            self._lately[method, raw_path] = found


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
        self.named: _Node | None = None
        self.handlers: dict[str, Handler] = {}

    def add(self, segments: list[str], method: str, handler: Handler) -> None:
        if not segments:
            self.handlers[method] = handler
            return
        if segments[0].startswith("{"):
            self.named = self.named or _Node()
            self.named.add(segments[1:], method, handler)
        else:
            self.fixed.setdefault(segments[0], _Node()).add(segments[1:], method, handler)

    def walk(
        self, segments: list[str], params: tuple[str, ...]
    ) -> Iterable[tuple[dict[str, Handler], tuple[str, ...]]]:
        """A fixed segment goes before a named one."""
        if not segments:
            if self.handlers:
                yield self.handlers, params
            return
        if segments[0] in self.fixed:
            yield from self.fixed[segments[0]].walk(segments[1:], params)
        if self.named is not None and segments[0]:
            yield from self.named.walk(segments[1:], (*params, segments[0]))
