"""A message as it arrives."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core.amps.headers import Header, text


class Message:
    """One delivery. With topic, bookmark and lease it is of a queue, and wants an ack."""

    __slots__ = ("bookmark", "data", "lease_period", "link", "settled", "sub_id", "topic")

    def __init__(self, header: Header, data: bytes, link: object = None) -> None:
        self.topic = header.subject
        self.bookmark = text(header.bm) or text(header.bookmark)
        self.sub_id = header.subscription
        self.lease_period = text(header.lp) or None
        """Until when it is held, as `20251231T235959.000000Z`; None for a message of a plain topic."""
        self.data = data
        self.link = link
        """The connection it came over: with it, its lease ends."""
        self.settled = False
        """Whether this client has said what became of it."""

    @property
    def wants_ack(self) -> bool:
        return bool(self.topic and self.bookmark and self.lease_period)

    @property
    def text(self) -> str:
        return self.data.decode()

    def json(self, kind: Any = Any) -> Any:
        """The body parsed as JSON, into `kind` when one is given."""
        return msgspec.json.decode(self.data, type=kind)

    def __repr__(self) -> str:
        return f"<Message {self.topic} {self.bookmark or '-'} {len(self.data)} bytes>"


def body_of(data: object) -> bytes:
    """Bytes go as they are, text as UTF-8, anything else as JSON."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    return data.encode() if isinstance(data, str) else msgspec.json.encode(data)
