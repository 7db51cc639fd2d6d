"""Payloads inside JSON: JSON as it is, other bytes as base64."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from ackwise.core.errors import BadInput
from ackwise.core.messages import JSON

BYTES = "application/octet-stream"
_scan = msgspec.json.Decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode


class Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    """A payload that is not JSON."""

    data: bytes = msgspec.field(name="$base64")


_unwrap = msgspec.json.Decoder(Wrapped).decode


def wrap(payload: bytes) -> bytes:
    return _encode(Wrapped(payload))


def are_json(payloads: Sequence[bytes]) -> bool:
    """Whether all payloads are valid JSON. A store does not check this: it accepts any bytes with any content type."""
    try:
        deque(map(_scan, payloads), maxlen=0)
        b"".join(payloads).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def for_answer(payload: bytes, content_type: str) -> tuple[bytes, str]:
    """A payload and its content type for an answer. Invalid JSON becomes bytes in base64."""
    if content_type != JSON:
        return wrap(payload), content_type
    return (payload, JSON) if are_json([payload]) else (wrap(payload), BYTES)


def from_request(raw: msgspec.Raw, content_type: str) -> bytes:
    """The payload bytes from a request."""
    if content_type == JSON:
        return bytes(raw)
    try:
        return _unwrap(raw).data
    except msgspec.DecodeError as problem:
        raise BadInput(f'a payload of type {content_type!r:.60} must be {{"$base64": "…"}}: {problem}') from None


def for_request(payload: bytes, content_type: str) -> msgspec.Raw:
    """A payload as a request carries it."""
    if content_type != JSON:
        return msgspec.Raw(wrap(payload))
    if not are_json([payload]):
        raise BadInput("the payload is not JSON; give bytes another content type")
    return msgspec.Raw(payload)
