"""Payload types: bytes become what a handler asks for, and back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol, get_args, get_type_hints, is_typeddict

import msgspec

from ackwise.client.payloads import as_json
from ackwise.core.errors import BadInput
from ackwise.core.messages import JSON
from ackwise.subscriber.handover import Undecodable

RAW = "application/octet-stream"
Read = Callable[[bytes], Any]
Write = Callable[[Any], bytes]


class Codec(Protocol):
    """How payloads of one type are read and written; it is made once for each handler and publisher."""

    content_type: str

    def reader(self, kind: Any) -> Read: ...

    def writer(self, kind: Any) -> Write: ...


class JSONCodec:
    """pydantic models by pydantic; dataclasses, structs, TypedDicts, lists and scalars by msgspec. Bytes stay as they
    are."""

    content_type = JSON

    def reader(self, kind: Any) -> Read:
        """What it raises is `Undecodable`."""
        if kind is bytes:
            return _unchanged
        return _guarded(_adapter(kind).validate_json if is_pydantic(kind) else msgspec.json.Decoder(kind).decode)

    def writer(self, kind: Any) -> Write:
        """What it raises is `BadInput`."""
        if kind is bytes:
            return bytes
        return _checked(kind, _adapter(kind).dump_json) if is_pydantic(kind) else as_json


def content_type_of(codec: Codec, kind: Any) -> str:
    return RAW if kind is bytes else codec.content_type


def _unchanged(body: bytes) -> bytes:
    return body


def _guarded(read: Read) -> Read:
    def reader(body: bytes) -> Any:
        try:
            return read(body)
        except (ValueError, TypeError, RecursionError) as problem:
            raise Undecodable(str(problem)) from problem

    return reader


def _checked(kind: Any, write: Write) -> Write:
    adapter = _adapter(kind)

    def writer(payload: Any) -> bytes:
        try:
            return write(adapter.validate_python(payload))
        except (ValueError, TypeError, RecursionError) as problem:
            raise BadInput(f"the payload cannot be written as {kind!r}: {problem}") from problem

    return writer


def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def is_pydantic(kind: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether a pydantic model is in it anywhere. Who has one has loaded pydantic."""
    if "pydantic" not in sys.modules:
        return False
    if isinstance(kind, type) and hasattr(kind, "__pydantic_validator__"):
        return True
    if any(is_pydantic(part, seen) for part in get_args(kind) if not isinstance(part, str | int)):
        return True
    fields = is_typeddict(kind) or hasattr(kind, "__dataclass_fields__")
    if not fields or kind in seen:
        return False
    try:
        parts = get_type_hints(kind).values()
    except NameError:
        return False
    return any(is_pydantic(part, seen | {kind}) for part in parts)
