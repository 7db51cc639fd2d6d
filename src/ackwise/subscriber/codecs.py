"""Payload types: bytes become what a handler asks for, and back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol, get_args, get_type_hints, is_typeddict

import msgspec
import msgspec.inspect

from ackwise.client.payloads import as_json
from ackwise.core.errors import BadInput
from ackwise.core.messages import JSON
from ackwise.subscriber.handover import Undecodable

RAW = "application/octet-stream"
Read = Callable[[bytes], Any]
Write = Callable[[Any], bytes]
_JSON_TYPES = (dict, list, str, int, float, bool, type(None))


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
        """What it raises is `Undecodable`. A type that nothing could ever be read as is a `TypeError` here."""
        if kind is bytes:
            return _unchanged
        return _guarded(_adapter(kind).validate_json if is_pydantic(kind) else _decoder(kind).decode)

    def writer(self, kind: Any) -> Write:
        """What it raises is `BadInput`: whatever it writes can be read as `kind` again."""
        if kind is bytes:
            return _plain
        if is_pydantic(kind):
            adapter = _adapter(kind)
            return _checked(kind, lambda payload: adapter.dump_json(adapter.validate_python(payload), by_alias=True))
        decoder = _decoder(kind)

        def write(payload: Any) -> bytes:
            body = as_json(payload)
            decoder.decode(body)
            return body

        return _checked(kind, write)


def content_type_of(codec: Codec, kind: Any) -> str:
    return RAW if kind is bytes else codec.content_type


def _unchanged(body: bytes) -> bytes:
    return body


def _plain(payload: Any) -> bytes:
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise BadInput(f"the payload must be bytes, not {type(payload).__name__}")
    return bytes(payload)


def _guarded(read: Read) -> Read:
    def reader(body: bytes) -> Any:
        try:
            return read(body)
        except (ValueError, TypeError, RecursionError) as problem:
            raise Undecodable(str(problem)) from problem

    return reader


def _checked(kind: Any, write: Write) -> Write:
    def writer(payload: Any) -> bytes:
        try:
            return write(payload)
        except BadInput:
            raise
        except (ValueError, TypeError, RecursionError) as problem:
            raise BadInput(f"the payload cannot be written as {kind!r}: {problem}") from problem

    return writer


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    for other in _others(msgspec.inspect.type_info(kind), set()):
        if not any(issubclass(one, other) for one in _JSON_TYPES):
            raise TypeError(f"JSON has nothing that could be read as {other.__qualname__}")
    return msgspec.json.Decoder(kind)


def _others(told: Any, seen: set[int]) -> Iterator[type]:
    """The types inside a type that msgspec knows nothing about."""
    if isinstance(told, tuple | list):
        for one in told:
            yield from _others(one, seen)
    elif isinstance(told, msgspec.inspect.CustomType):
        yield told.cls
    elif isinstance(told, msgspec.inspect.Type | msgspec.inspect.Field) and id(told) not in seen:
        seen.add(id(told))
        for name in told.__struct_fields__:
            yield from _others(getattr(told, name), seen)


def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def is_pydantic(kind: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether a pydantic model is in it anywhere. Who has one has loaded pydantic."""
    if "pydantic" not in sys.modules:
        return False
    if isinstance(kind, type) and hasattr(kind, "__pydantic_validator__"):
        return True
    if any(is_pydantic(part, seen) or _is_constraint(part) for part in get_args(kind)):
        return True
    fields = is_typeddict(kind) or (isinstance(kind, type) and hasattr(kind, "__dataclass_fields__"))
    if not fields or kind in seen:
        return False
    try:
        parts = get_type_hints(kind).values()
    except NameError:
        return False
    return any(is_pydantic(part, seen | {kind}) for part in parts)


def _is_constraint(part: Any) -> bool:
    """`Annotated[int, Field(gt=0)]`: pydantic alone knows what is meant."""
    return type(part).__module__.partition(".")[0] in ("pydantic", "annotated_types")
