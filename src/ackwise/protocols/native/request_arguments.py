"""Request arguments of the native API: query parameters and content types."""

from __future__ import annotations

from ackwise.core import validation
from ackwise.core.errors import BadInput, NotFound
from ackwise.protocols.http_request import Call, with_plus
from ackwise.protocols.http_response import ARROW
from ackwise.wire import timestamps


class NotAcceptable(BadInput):
    """The server cannot answer with this content type."""

    code = "not_acceptable"


class UnsupportedMedia(BadInput):
    """The server cannot read a body of this content type."""

    code = "unsupported_media_type"


class UnknownTable(NotFound):
    """The table does not exist."""

    code = "unknown_table"


def wants_arrow(call: Call) -> bool:
    return ARROW in call.header(b"accept").lower()


def sends_arrow(call: Call) -> bool:
    return call.header(b"content-type").lower().startswith(ARROW)


class Arguments:
    """Reader of the query string. `done` raises `BadInput` for an argument that the route has not read."""

    def __init__(self, query: dict[str, str]) -> None:
        self._left = dict(query)

    def text(self, name: str) -> str | None:
        return self._left.pop(name, None)

    def needed(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise BadInput(f"{name} is required; add ?{name}=… to the path")
        return value

    def count(self, name: str, default: int, *, least: int = 0, most: int = 1 << 31) -> int:
        value = self.text(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or len(value) > 18:
            raise BadInput(f"{name} must be a whole number, not {value!r:.60}")
        return validation.count(int(value), name, least=least, most=most)

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        return validation.one_of(value, name, ("true", "false")) == "true"

    def instant(self, name: str) -> int | None:
        value = self.text(name)
        return None if value is None else timestamps.parse(with_plus(value), name)

    def done(self) -> None:
        if self._left:
            raise BadInput(f"unknown argument {min(self._left)!r:.60}")
