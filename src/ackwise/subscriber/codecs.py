"""Codecs: decode payloads to a handler's type and encode them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol, get_args, get_type_hints, is_typeddict

import msgspec
import msgspec.inspect

from ackwise.client.payloads import as_json
from ackwise.core.errors import BadInput
from ackwise.core.messages import JSON
from ackwise.subscriber.transport_delivery import Undecodable

RAW = "application/octet-stream"
Read = Callable[[bytes], Any]
Write = Callable[[Any], bytes]
_JSON_TYPES = (dict, list, str, int, float, bool, type(None))


class Codec(Protocol):
    """Decodes and encodes payloads. Readers and writers are made once per handler and publisher."""

    content_type: str

    def reader(self, kind: Any) -> Read: ...

    def writer(self, kind: Any) -> Write: ...


class JSONCodec:
    """JSON codec. pydantic handles its models. msgspec handles dataclasses, structs, TypedDicts and scalars.

    Payloads of type bytes stay as they are.
    """

    content_type = JSON

    def reader(self, kind: Any) -> Read:
        """Make a decoder to `kind` that raises `Undecodable`. Raises TypeError if JSON cannot hold `kind`."""
        if kind is bytes:
            return _unchanged
        return _guarded(_adapter(kind).validate_json if is_pydantic(kind) else _decoder(kind).decode)

    def writer(self, kind: Any) -> Write:
        """Make an encoder of `kind` that raises `BadInput` if its result could not be decoded again."""
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
    for other in _custom_types(msgspec.inspect.type_info(kind), set()):
        if not any(issubclass(json_type, other) for json_type in _JSON_TYPES):
            raise TypeError(f"JSON has no value that can be decoded as {other.__qualname__}")
    return msgspec.json.Decoder(kind)


def _custom_types(info: Any, seen: set[int]) -> Iterator[type]:
    """The types inside `info` that msgspec does not support."""
    if isinstance(info, tuple | list):
        for part in info:
            yield from _custom_types(part, seen)
    elif isinstance(info, msgspec.inspect.CustomType):
        yield info.cls
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) and id(info) not in seen:
        seen.add(id(info))
        for name in info.__struct_fields__:
            yield from _custom_types(getattr(info, name), seen)


def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def is_pydantic(kind: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether the type contains a pydantic model anywhere."""
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
    """Whether `part` is a constraint such as `Field(gt=0)`, which only pydantic supports."""
    return type(part).__module__.partition(".")[0] in ("pydantic", "annotated_types")
