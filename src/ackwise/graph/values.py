"""Values, entities and their sort order."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any

import msgspec

from ackwise.graph import errors
from ackwise.graph.errors import NOWHERE, At
from ackwise.graph.ontology import EdgeType, NodeType, own_attribute

LEAST, MOST = -(2**63), 2**63 - 1


class Timestamp(int):
    """Milliseconds since 1970, UTC."""


class Duration(int):
    """Milliseconds."""


class Entity(msgspec.Struct, eq=False):
    """A node or an edge. `no` is its number, in the order of arrival."""

    no: int
    id: str
    type: NodeType | EdgeType
    attrs: dict[str, Any]
    tick: int = 0
    loader: Callable[[int], tuple[tuple[int, ...], tuple[str, ...]]] | None = None
    """Reads the ends of an edge, by number and by id, at first use."""
    ends: tuple[tuple[int, ...], tuple[str, ...]] | None = None

    @property
    def targets(self) -> tuple[int, ...]:
        return self._read()[0]

    @property
    def target_ids(self) -> tuple[str, ...]:
        return self._read()[1]

    def _read(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        if self.ends is None:
            self.ends = self.loader(self.no) if self.loader is not None else ((), ())
        return self.ends

    def value(self, name: str, at: At = NOWHERE) -> Any:
        if name in ("id", "_id") and name not in self.type.attributes:
            return self.id
        if name == "_type":
            return self.type.name
        if name == "_targets" and isinstance(self.type, EdgeType):
            return list(self.target_ids)
        declared = own_attribute(self.type, name, at)
        value = self.attrs.get(name)
        if value is None:
            return None
        if declared.scalar == "Timestamp":
            return Timestamp(value)
        return Duration(value) if declared.scalar == "Duration" else value

    def shown(self) -> dict[str, Any]:
        """The entity as a flat object: id, type and every attribute."""
        shown: dict[str, Any] = {"id": self.id, "_type": self.type.name}
        if isinstance(self.type, EdgeType):
            shown["_targets"] = list(self.target_ids)
        shown.update((name, self.attrs.get(name)) for name in self.type.attributes)
        return shown


def kind_of(value: object) -> str:
    """The name of a value's type in the language."""
    match value:
        case None:
            return "null"
        case bool():
            return "Bool"
        case Timestamp():
            return "Timestamp"
        case Duration():
            return "Duration"
        case int():
            return "Int"
        case float():
            return "Float"
        case str():
            return "String"
        case list():
            return "List"
        case Entity():
            return value.type.name
        case _:
            return type(value).__name__


def fitting(value: object, scalar: str, name: str, at: At = NOWHERE) -> Any:
    """The value as an attribute of type `scalar` stores it. Raises TYPE_ERROR if it does not fit."""
    kind = kind_of(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not LEAST <= value <= MOST:
            raise errors.wrong_type(f"attribute '{name}': {value} does not fit into 64 bits", at)
        if scalar == kind or (kind == "Int" and scalar in ("Timestamp", "Duration")):
            return int(value)
        if kind == "Int" and scalar == "Float":
            return float(value)
    elif kind == scalar and isinstance(value, str | float | bool):
        _check_storable(value, name, at)
        return value
    raise errors.wrong_type(f"attribute '{name}' is {scalar}, not {kind}", at)


def _check_storable(value: str | float | bool, name: str, at: At) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise errors.wrong_type(f"attribute '{name}' must be a finite number", at)
    if not isinstance(value, str):
        return
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise errors.wrong_type(f"attribute '{name}' must be valid Unicode", at) from None
    if "\0" in value:
        raise errors.wrong_type(f"attribute '{name}' must not contain NUL", at)


def sort_text(values: Iterable[tuple[Any, bool]]) -> str:
    """One string for values with their directions (descending or not). The strings sort as the values do."""
    return "".join(_key(value, descending) for value, descending in values)


def _key(value: Any, descending: bool) -> str:
    raw = _bytes(value)
    return (bytes(255 - byte for byte in raw) if descending else raw).hex()


def _bytes(value: Any) -> bytes:
    """A tag byte, then the value. A string ends with a zero byte and contains none."""
    if value is None:
        return b"\x09"
    if isinstance(value, Entity):
        value = value.id
    if isinstance(value, str):
        return b"\x03" + value.encode("utf-8", "replace").replace(b"\0", b"") + b"\0"
    number = float(value)
    packed = struct.pack(">d", number + 0.0)
    # The complement of a negative number and the sign bit of a positive one make the bytes sort by value.
    ordered = bytes(255 - byte for byte in packed) if packed[0] & 0x80 else bytes([packed[0] | 0x80]) + packed[1:]
    exact = int(value) - int(number) if isinstance(value, int) else 0
    return b"\x02" + ordered + (exact + (1 << 15)).to_bytes(2, "big")
