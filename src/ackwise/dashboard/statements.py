"""Port of the statement box: the part of MEW that the graph page needs. The server passes an implementation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

import msgspec

Line = dict[str, Any]
"""A result, an event, an error or a notice, as `POST /mew` answers it, within the bounds of a page."""
Client = Sequence[object] | None
"""Address and port of the browser."""


class BoxLine(msgspec.Struct):
    """A line with all fields that the page shows."""

    kind: str
    number: int = 0
    """Number of an event in its stream."""
    line: int = 0
    column: int = 0
    # a result
    statement: str = ""
    columns: list[str] = []
    rows: list[list[Any]] = []
    rows_left: int = 0
    created: int = 0
    linked: int = 0
    modified: int = 0
    deleted: int = 0
    unlinked: int = 0
    found: bool | None = None
    handle: str | None = None
    bindings: dict[str, Any] = {}
    declared: dict[str, Any] = {}
    outcome: str | None = None
    reason: str | None = None
    # an error or a notice
    code: str = ""
    message: str = ""
    hint: str = ""
    source: str = ""
    # an event
    watch: str | None = None
    type: str = ""
    tick: int | None = None
    match: Any = None
    matches: Any = None
    prev: Any = None
    delivery_id: str | None = None
    attempt: int | None = None
    # plain text
    text: str = ""

    @property
    def effects(self) -> list[str]:
        """Effects of the statement as short texts: `created 2`, `outcome acked`."""
        counts = [f"{name} {number:,}" for name in _COUNTS if (number := getattr(self, name))]
        if self.found is not None:
            counts.append("found" if self.found else "not found")
        if self.handle is not None:
            counts.append(f"watch {self.handle}")
        counts += [f"{name} {text}" for name in ("outcome", "reason") if (text := getattr(self, name))]
        return counts + [f"{name} = {value}" for name, value in (self.bindings | self.declared).items()]


_COUNTS = ("created", "linked", "modified", "deleted", "unlinked")


def box_line(line: Line, number: int = 0) -> BoxLine:
    return msgspec.convert({**line, "number": number}, BoxLine)


class StatementAnswer(Protocol):
    """Lines of a text, in order. The answer leaves out `lines_left` further lines."""

    @property
    def lines(self) -> list[Line]: ...

    @property
    def lines_left(self) -> int: ...

    @property
    def watches(self) -> bool:
        """Whether the page has a watch, whose events it may stream."""
        ...


class Statements(Protocol):
    """Runs the texts of pages. A unique id identifies each page."""

    async def run(
        self, page: str, text: str, *, client: Client, reads_only: bool, events: bool = False
    ) -> StatementAnswer:
        """Run a text. With `events` the answer has the first events. With `reads_only` the text may only read."""
        ...

    def events(self, page: str, *, client: Client) -> AsyncGenerator[Line | None, None]:
        """Yields events of the page's watches, and None while no event arrives. The watches end with the iterator."""
        ...
