"""Message and errors of the AMPS client."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core.errors import AckwiseError
from ackwise.wire.amps import Header, text


class Message:
    """A received message. A message of a queue has a bookmark and a lease, and needs an ack."""

    __slots__ = (
        "attempt",
        "bookmark",
        "connection",
        "data",
        "headers",
        "lease_period",
        "settled",
        "sub_id",
        "topic",
    )

    def __init__(self, header: Header, data: bytes, connection: object = None) -> None:
        self.topic = header.subject
        self.bookmark = text(header.bm) or text(header.bookmark)
        self.sub_id = header.subscription
        self.lease_period = text(header.lp) or None
        """When the lease expires, as `20251231T235959.000000Z`. None for a message of a plain topic."""
        self.headers = header.trace_context
        """The W3C trace context of the message. Empty if there is none, or if the client makes no spans."""
        attempt = text(header.attempt)
        self.attempt = int(attempt) if attempt.isdecimal() else 1
        """The number of the delivery. Known only for a message with a trace context, otherwise 1."""
        self.data = data
        self.connection = connection
        """The connection that delivered the message. The lease ends with this connection."""
        self.settled = False
        """Whether this client has acked, cancelled or expired the message."""

    @property
    def wants_ack(self) -> bool:
        """Whether the message comes from a queue and needs an ack."""
        return bool(self.topic and self.bookmark and self.lease_period)

    @property
    def text(self) -> str:
        """The body decoded as UTF-8."""
        return self.data.decode()

    def json(self, kind: Any = Any) -> Any:
        """Decode the body as JSON, into `kind` if you give one."""
        return msgspec.json.decode(self.data, type=kind)

    def __repr__(self) -> str:
        return f"<Message {self.topic} {self.bookmark or '-'} {len(self.data)} bytes>"


def body_of(data: object) -> bytes:
    """Encode a message's body: bytes stay as they are, text becomes UTF-8, all else becomes JSON."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    return data.encode() if isinstance(data, str) else msgspec.json.encode(data)


class CommandFailed(AckwiseError):
    """The server refused the command."""

    code = "command_failed"


class NoAnswer(CommandFailed):
    """The server did not answer in time. It may or may not have done the command."""

    code = "no_answer"


class Disconnected(AckwiseError):
    """The client is not connected to a server."""

    code = "disconnected"
