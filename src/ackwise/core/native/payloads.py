"""Payloads inside JSON: JSON goes as it is, byte for byte; anything else as `{"$base64": …}`."""

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
    """Bytes that are not JSON."""

    data: bytes = msgspec.field(name="$base64")


_unwrap = msgspec.json.Decoder(Wrapped).decode


def wrap(payload: bytes) -> bytes:
    return _encode(Wrapped(payload))


def are_json(payloads: Sequence[bytes]) -> bool:
    """Whether each can stand in a JSON text as it is. A store takes any bytes under any name, so somebody must look."""
    try:
        deque(map(_scan, payloads), maxlen=0)
        b"".join(payloads).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def shown(payload: bytes, content_type: str) -> tuple[bytes, str]:
    """A payload as it stands in an answer, and its content type: what says that it is JSON and is not, is bytes."""
    if content_type != JSON:
        return wrap(payload), content_type
    return (payload, JSON) if are_json([payload]) else (wrap(payload), BYTES)


def given(raw: msgspec.Raw, content_type: str) -> bytes:
    """The payload behind what stands in a request."""
    if content_type == JSON:
        return bytes(raw)
    try:
        return _unwrap(raw).data
    except msgspec.DecodeError as problem:
        raise BadInput(
            f'a payload of type {content_type!r:.60} goes as {{"$base64": "…"}}; this one does not: {problem}'
        ) from None


def written(payload: bytes, content_type: str) -> msgspec.Raw:
    """A payload as it stands in a request."""
    if content_type != JSON:
        return msgspec.Raw(wrap(payload))
    if not are_json([payload]):
        raise BadInput("the payload is not JSON; give bytes another content type")
    return msgspec.Raw(payload)
