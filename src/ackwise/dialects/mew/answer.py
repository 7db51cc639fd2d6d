"""The answer of one `POST /mew`: its lines are counted as they come, and written in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ackwise.core.graph import faults
from ackwise.core.graph.budget import StatementLimits, weight
from ackwise.dialects.http import encode
from ackwise.dialects.mew.lines import Line, Object, Result

LINE = 512
"""Bytes that a line takes besides its rows: 10,000 statements make 10,000 lines."""
PIECE = 256 << 10
"""One piece is encoded at once. The event loop runs between two pieces."""
FEW_ROWS = 500
FEW_BYTES = 64 << 10
"""The event loop encodes smaller answers itself, in one piece."""


class Gathered:
    """Lines for one client. Their rows and bytes are bounded over the whole call, like those of one statement."""

    def __init__(self, limits: StatementLimits, grow: Callable[[int], bool], *, full: bool = False) -> None:
        """`grow` takes answer memory for so many bytes in all, or returns False."""
        self.lines: deque[Object] = deque()
        self.fine = True
        self._limits, self._grow, self._full = limits, grow, full
        self._rows = self._bytes = 0

    @property
    def is_small(self) -> bool:
        return self._bytes <= FEW_BYTES and self._rows <= FEW_ROWS

    def admit(self, rows: list[list[Any]]) -> None:
        """Count rows before their line comes. Raises when the whole answer would be too large, or memory is short."""
        size = self._bytes + (weight(rows) if rows else 0)
        if self._rows + len(rows) > self._limits.rows:
            raise faults.statement_limit("call_rows", self._limits.rows)
        if size > self._limits.bytes:
            raise faults.statement_limit("call_bytes", self._limits.bytes)
        if size > FEW_BYTES and not self._grow(size):
            raise faults.answers_full()
        self._rows += len(rows)
        self._bytes = size

    def emit(self, line: Line) -> None:
        found = line.as_object(full=self._full)
        self._bytes += LINE + weight(line.done.bindings if isinstance(line, Result) else found)
        self.lines.append(found)

    def whole(self, session: str) -> bytes:
        return encode({"session": session, "lines": list(self.lines), "fine": self.fine})

    def pieces(self, session: str) -> Iterator[bytes]:
        """The same in pieces. Each line is dropped when it is written."""
        kept: list[bytes] = []
        size = 0
        for part in self._parts(session):
            kept.append(part)
            size += len(part)
            if size >= PIECE:
                yield b"".join(kept)
                kept, size = [], 0
        yield b"".join(kept)

    def _parts(self, session: str) -> Iterator[bytes]:
        yield b'{"session":%b,"lines":[' % encode(session)
        while self.lines:
            yield from _written(self.lines.popleft())
            if self.lines:
                yield b","
        yield b'],"fine":%b}' % encode(self.fine)


def _written(value: Any) -> Iterator[bytes]:
    """JSON of a value. Only values of one piece, and strings, are encoded in one go."""
    if not isinstance(value, list | dict) or weight(value) <= PIECE:
        yield encode(value)
    elif isinstance(value, list):
        before = b"["
        for one in value:
            yield before
            yield from _written(one)
            before = b","
        yield b"]"
    else:
        before = b"{"
        for key, one in value.items():
            yield before + encode(key) + b":"
            yield from _written(one)
            before = b","
        yield b"}"
