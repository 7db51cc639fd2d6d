"""Values of the graph: what expressions give and attributes hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ackwise.core.graph import faults
from ackwise.core.graph.faults import NOWHERE, At
from ackwise.core.graph.ontology import EdgeType, NodeType, own_attribute

LEAST, MOST = -(2**63), 2**63 - 1


class Timestamp(int):
    """Milliseconds since 1970, UTC."""


class Duration(int):
    """Milliseconds."""


class Entity(msgspec.Struct, eq=False):
    """A node or an edge as it stands; `no` is its arrival number."""

    no: int
    id: str
    type: NodeType | EdgeType
    attrs: dict[str, Any]
    tick: int = 0
    loader: Callable[[int], tuple[tuple[int, ...], tuple[str, ...]]] | None = None
    """Reads an edge's ends, by number and by id, when they are asked for."""
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
        """The whole entity, flat: id, type and every attribute."""
        found: dict[str, Any] = {"id": self.id, "_type": self.type.name}
        if isinstance(self.type, EdgeType):
            found["_targets"] = list(self.target_ids)
        found.update((name, self.attrs.get(name)) for name in self.type.attributes)
        return found


def kind_of(value: object) -> str:
    """What a value is, in the language's words."""
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
    """The value as an attribute of that type stores it, or a refusal."""
    given = kind_of(value)
    if isinstance(value, int) and not isinstance(value, bool) and not LEAST <= value <= MOST:
        raise faults.wrong_type(f"attribute '{name}': {value} does not fit into 64 bits", at)
    if isinstance(value, int) and not isinstance(value, bool):
        if scalar == given or (given == "Int" and scalar in ("Timestamp", "Duration")):
            return int(value)
        if given == "Int" and scalar == "Float":
            return float(value)
    elif isinstance(value, float) and scalar == "Float":
        if value != value or value in (float("inf"), float("-inf")):
            raise faults.wrong_type(f"attribute '{name}' must be a finite number", at)
        return value
    elif given == scalar and isinstance(value, str | bool):
        if isinstance(value, str):
            _storable(value, name, at)
        return value
    raise faults.wrong_type(f"attribute '{name}' is {scalar}, not {given}", at)


def _storable(value: str, name: str, at: At) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise faults.wrong_type(f"attribute '{name}' must be valid Unicode", at) from None
    if "\0" in value:
        raise faults.wrong_type(f"attribute '{name}' must not contain NUL", at)
