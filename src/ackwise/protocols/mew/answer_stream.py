"""Answer of `POST /mew`: bounds the rows and bytes of its lines, and encodes it in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ackwise.engine.statement_limits import StatementLimits, weight
from ackwise.graph import errors
from ackwise.graph.commands import GROUP_BYTES, GROUP_ROWS
from ackwise.protocols.http_response import encode
from ackwise.protocols.mew.output_records import Line, Object, Result

LINE = 512
"""Estimated bytes of a line without its rows: 10,000 statements make 10,000 lines."""
PIECE = 256 << 10
"""Bytes of a piece. The event loop runs between two pieces."""
FEW_ROWS = 500
FEW_BYTES = 64 << 10
"""Answers up to this size are encoded in one piece, by the event loop itself."""


class CollectedAnswer:
    """Lines of one call. Limits of rows and bytes apply to the call as a whole, too."""

    def __init__(self, limits: StatementLimits, grow: Callable[[int], bool], *, full: bool = False) -> None:
        """`grow` reserves answer memory up to a number of bytes. It returns False if the server has none left."""
        self.lines: deque[Object] = deque()
        self.fine = True
        self._limits, self._grow, self._full = limits, grow, full
        self._rows = self._bytes = 0

    @property
    def size(self) -> int:
        """About the bytes of the answer."""
        return self._bytes

    @property
    def is_small(self) -> bool:
        return self._bytes <= FEW_BYTES and self._rows <= FEW_ROWS

    def admit(self, rows: list[list[Any]]) -> None:
        """Count the rows of the next line. Raises if the answer becomes too large, or the server's memory is full."""
        size = self._bytes + (weight(rows) if rows else 0)
        if self._rows + len(rows) > self._limits.rows:
            raise errors.statement_limit("call_rows", self._limits.rows)
        if size > self._limits.bytes:
            raise errors.statement_limit("call_bytes", self._limits.bytes)
        if size > FEW_BYTES and not self._grow(size):
            raise errors.answers_full()
        self._rows += len(rows)
        self._bytes = size

    def has_room(self) -> bool:
        """Whether the rows of a group of statements are sure to be admitted. Takes the memory for them."""
        size = self._bytes + 2 * GROUP_BYTES  # the rows, and the lines
        fits = self._rows + GROUP_ROWS <= self._limits.rows and size <= self._limits.bytes
        return fits and self._grow(size)

    def emit(self, line: Line) -> None:
        record = line.as_object(full=self._full)
        self._bytes += LINE + weight(line.done.bindings if isinstance(line, Result) else record)
        self.lines.append(record)

    def whole(self, session: str) -> bytes:
        return encode({"session": session, "lines": list(self.lines), "fine": self.fine})

    def pieces(self, session: str) -> Iterator[bytes]:
        """The answer in pieces. Drops each line once it is encoded."""
        parts: list[bytes] = []
        size = 0
        for part in self._parts(session):
            parts.append(part)
            size += len(part)
            if size >= PIECE:
                yield b"".join(parts)
                parts, size = [], 0
        yield b"".join(parts)

    def _parts(self, session: str) -> Iterator[bytes]:
        yield b'{"session":%b,"lines":[' % encode(session)
        while self.lines:
            yield from _encoded(self.lines.popleft())
            if self.lines:
                yield b","
        yield b'],"fine":%b}' % encode(self.fine)


def _encoded(value: Any) -> Iterator[bytes]:
    """JSON of a value, in parts. Values up to the size of a piece, and strings, are one part."""
    if not isinstance(value, list | dict) or weight(value) <= PIECE:
        yield encode(value)
    elif isinstance(value, list):
        before = b"["
        for item in value:
            yield before
            yield from _encoded(item)
            before = b","
        yield b"]"
    else:
        before = b"{"
        for key, item in value.items():
            yield before + encode(key) + b":"
            yield from _encoded(item)
            before = b","
        yield b"}"
