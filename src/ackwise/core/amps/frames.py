"""A frame: four bytes of length, a header, and the body right behind the header's closing brace."""

from __future__ import annotations

import re

from ackwise.core.amps import headers
from ackwise.core.amps.headers import Header
from ackwise.core.errors import BadInput

LARGEST = 16 << 20
LONGEST_HEADER = 1 << 20
"""It may hold many bookmarks, but a header that does not end is not searched for ever."""
_PREFIX = 4
_FLAT = re.compile(rb'\s*+\{[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+\}', re.DOTALL)

Frame = tuple[Header, bytes]


class BadFrame(BadInput):
    """What came is not a frame; nothing that follows can be understood."""

    code = "bad_frame"


def pack(header: bytes, body: bytes = b"") -> bytes:
    return b"%b%b%b" % ((len(header) + len(body)).to_bytes(_PREFIX, "big"), header, body)


def packed(header: Header, body: bytes = b"") -> bytes:
    return pack(headers.encode(header), body)


class Frames:
    """Cuts a stream of bytes into frames. What is too large is refused by its length, before it is read."""

    def __init__(self, largest: int = LARGEST) -> None:
        self._largest = largest
        self._data = bytearray()
        self._at = 0
        self.size = 0
        """Of the last frame, in bytes."""

    def feed(self, data: bytes) -> None:
        if self._at:
            del self._data[: self._at]
            self._at = 0
        self._data += data

    def next(self) -> Frame | None:
        """The next whole frame; None when more has to come."""
        have = len(self._data) - self._at
        if have < _PREFIX:
            return None
        start = self._at + _PREFIX
        size = int.from_bytes(self._data[self._at : start], "big")
        if size > self._largest:
            raise BadFrame(f"a frame of {size} bytes is over the limit of {self._largest}")
        if have < _PREFIX + size:
            return None
        self.size, end = size, start + size
        raw = bytes(memoryview(self._data)[start:end])
        self._at = end
        return split(raw)

    @property
    def unfinished(self) -> int:
        """How many bytes of a frame are there that is not whole."""
        return len(self._data) - self._at


def split(raw: bytes) -> Frame:
    """The header and the body of a frame."""
    found = _FLAT.match(raw, 0, LONGEST_HEADER)
    if found is None:
        raise BadFrame("the frame does not begin with a flat JSON object")
    try:
        return headers.decode(found[0]), raw[found.end() :]
    except BadInput as problem:
        raise BadFrame(problem.message) from None
