"""Port of the statement box: what the graph page needs of MEW. The server passes an object that fits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

Line = dict[str, Any]
"""A result, an event, an error or a notice, as `POST /mew` answers it, within the bounds of a page."""
Client = Sequence[object] | None
"""Address and port of the browser."""


class StatementAnswer(Protocol):
    """Lines of a text, in order. `lines_left` more lines are not part of it."""

    @property
    def lines(self) -> list[Line]: ...

    @property
    def lines_left(self) -> int: ...

    @property
    def watches(self) -> bool:
        """Whether the page has a watch, whose events it may stream."""
        ...


class Statements(Protocol):
    """Runs the texts of pages. A page is known by an id that only it has."""

    async def run(
        self, page: str, text: str, *, client: Client, reads_only: bool, events: bool = False
    ) -> StatementAnswer:
        """Run a text. With `events` the answer has the first events. With `reads_only` the text may only read."""
        ...

    def events(self, page: str, *, client: Client) -> AsyncGenerator[Line | None, None]:
        """Events of the page's watches, as they come, and None while there is none. The watches end with it."""
        ...
