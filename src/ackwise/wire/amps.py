"""AMPS frames, headers, TCP keep-alive options."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Protocol

import msgspec

from ackwise.core.errors import BadInput
from ackwise.wire import trace_context

Scalar = str | int | float | bool | None
ANSWERS = ("received", "parsed", "processed", "persisted", "completed", "stats")
"""Acknowledgements that a command can request, in the order in which they happen."""
SUCCESS, FAILURE = "success", "failure"
TRACED = "trace_context"
"""Option of a subscription: its messages have the fields `traceparent`, `tracestate` and `attempt`."""


class Header(msgspec.Struct, omit_defaults=True):
    """Header of a frame. Every field accepts a quoted or a bare number."""

    c: Scalar = None
    cid: Scalar = None
    t: Scalar = None
    topic: Scalar = None
    a: Scalar = None
    sids: Scalar = None
    sub_id: Scalar = None
    bm: Scalar = None
    bookmark: Scalar = None
    lp: Scalar = None
    s: Scalar = None
    e: Scalar = None
    f: Scalar = None
    filter: Scalar = None
    o: Scalar = None
    opts: Scalar = None
    status: Scalar = None
    reason: Scalar = None
    records_deleted: Scalar = None
    client_name: Scalar = None
    version: Scalar = None
    mt: Scalar = None
    user_id: Scalar = None
    pw: Scalar = None
    traceparent: Scalar = None
    tracestate: Scalar = None
    attempt: Scalar = None
    """Number of a redelivery, from 2. The server writes it only with a trace context."""

    @property
    def command(self) -> str:
        return "p" if self.c == "publish" else text(self.c)

    @property
    def subject(self) -> str:
        """The topic, from `t` or `topic`."""
        return text(self.t) or text(self.topic)

    @property
    def options(self) -> dict[str, str]:
        """Options such as `max_backlog=20,replace` as a mapping. An option without a value maps to ""."""
        pairs = (option.partition("=") for option in (text(self.opts) or text(self.o)).split(","))
        return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}

    @property
    def bookmarks(self) -> list[str]:
        return [bookmark.strip() for bookmark in (text(self.bm) or text(self.bookmark)).split(",") if bookmark.strip()]

    @property
    def content_filter(self) -> str:
        """The filter, from `filter` or `f`. "" if there is none."""
        raw = self.f if self.filter is None else self.filter
        if isinstance(raw, bool):
            raise BadInput("the filter must be a text")
        return text(raw).strip()

    @property
    def subscription(self) -> str:
        return text(self.sub_id) or text(self.sids)

    @property
    def trace_context(self) -> dict[str, str]:
        """The W3C trace context of a message. Empty without a valid one."""
        if self.traceparent is None:
            return {}
        return trace_context.context_of(text(self.traceparent), text(self.tracestate))

    @property
    def acknowledgements(self) -> list[str]:
        """The known acknowledgements that the command requests."""
        wanted = {name.strip() for name in text(self.a).split(",")}
        return [name for name in ANSWERS if name in wanted]


_decoder = msgspec.json.Decoder(Header)
_encoder = msgspec.json.Encoder()


def decode(raw: bytes) -> Header:
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise BadInput(f"invalid header: {problem}") from None


def encode(header: Header) -> bytes:
    """Encode a header as compact JSON in UTF-8, without absent fields."""
    return _encoder.encode(header)


def quoted(value: str) -> bytes:
    """A text as JSON for a header."""
    return _encoder.encode(value)


def text(value: Scalar) -> str:
    """A field as text, "" if it is absent."""
    if value is None or isinstance(value, bool):
        return ""
    return value if isinstance(value, str) else str(value)


LARGEST = 16 << 20
LONGEST_HEADER = 1 << 20
"""A header may hold many bookmarks. The limit bounds the search for its end."""
_PREFIX = 4
_FLAT = re.compile(rb'\s*+\{[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+\}', re.DOTALL)

Frame = tuple[Header, bytes]


class BadFrame(BadInput):
    """The bytes are no frame. The connection cannot continue."""

    code = "bad_frame"


def pack(header: bytes, body: bytes = b"") -> bytes:
    return b"%b%b%b" % ((len(header) + len(body)).to_bytes(_PREFIX, "big"), header, body)


def packed(header: Header, body: bytes = b"") -> bytes:
    return pack(encode(header), body)


class Frames:
    """Cuts a byte stream into frames. Refuses a frame that is too large by its length prefix."""

    def __init__(self, largest: int = LARGEST) -> None:
        self._largest = largest
        self._data = bytearray()
        self._at = 0
        self.size = 0
        """Bytes of the last frame."""

    def feed(self, data: bytes) -> None:
        if self._at:
            del self._data[: self._at]
            self._at = 0
        self._data += data

    def next(self) -> Frame | None:
        """The next complete frame. None if bytes are missing."""
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
        """Bytes of an incomplete frame."""
        return len(self._data) - self._at


def split(raw: bytes) -> Frame:
    """The header and the body of a frame."""
    header = _FLAT.match(raw, 0, LONGEST_HEADER)
    if header is None:
        raise BadFrame("the frame does not begin with a flat JSON object")
    try:
        return decode(header[0]), raw[header.end() :]
    except BadInput as problem:
        raise BadFrame(problem.message) from None


_OPTIONS = (
    ("SOL_SOCKET", "SO_KEEPALIVE", 1),
    ("IPPROTO_TCP", "TCP_KEEPIDLE", 15),
    ("IPPROTO_TCP", "TCP_KEEPINTVL", 5),
    ("IPPROTO_TCP", "TCP_KEEPCNT", 3),
    ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 30_000),
)


class Socket(Protocol):
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def keep_alive(sock: Socket, names: ModuleType) -> None:
    """Switch on TCP keep-alive. `names` is the `socket` module. Skips options that the system lacks."""
    for level, option, value in _OPTIONS:
        if hasattr(names, option):
            sock.setsockopt(getattr(names, level), getattr(names, option), value)
