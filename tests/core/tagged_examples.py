"""An example of every tagged class, built from the types of its fields, as the bytes that are stored or sent.

`python -m tests.core.tagged_examples` writes tests/data/tagged_bytes.jsonl. Run it after you added a class or a field
with a default. A changed or lost line means that stored watches or other versions of the client no longer fit.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect as shapes

import ackwise.core
import ackwise.graph
import ackwise.wire

BYTES = Path(__file__).parent.parent / "data" / "tagged_bytes.jsonl"
DEEPEST = 3
"""Levels of nested structs. Below, an optional value is None and a list is empty."""


def tagged_classes() -> list[type[msgspec.Struct]]:
    """Every class of core, wire and graph whose bytes carry its tag, by module and tag."""
    for package in (ackwise.core, ackwise.wire, ackwise.graph):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    leaves = (kind for kind in _below(msgspec.Struct) if not kind.__subclasses__())
    classes = (kind for kind in leaves if kind.__struct_config__.tag is not None)
    return sorted(set(classes), key=lambda kind: (kind.__module__, kind.__struct_config__.tag, kind.__name__))


def _below(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for subclass in kind.__subclasses__():
        if subclass.__module__.startswith(("ackwise.core.", "ackwise.wire.", "ackwise.graph.")):
            yield subclass
        if subclass.__module__.startswith(("ackwise.", "msgspec.")):
            yield from _below(subclass)


def lines() -> list[str]:
    """The examples as JSON, one line for each class."""
    return [msgspec.json.encode(example(kind)).decode() for kind in tagged_classes()]


def example(kind: type[msgspec.Struct]) -> msgspec.Struct:
    """An instance of the class. No field has its default, so every field is in the bytes."""
    shape = shapes.type_info(kind)
    assert isinstance(shape, shapes.StructType)
    struct: msgspec.Struct = _struct(shape, 0)
    return struct


def _struct(shape: shapes.StructType | shapes.NamedTupleType, depth: int) -> Any:
    return shape.cls(**{f.name: _value(f.type, f.name, f.default, depth + 1) for f in shape.fields})


def _value(shape: shapes.Type, name: str, default: Any, depth: int) -> Any:
    """A value of the type that is not the default. Texts are the name of their field."""
    match shape:
        case shapes.UnionType():
            return _of_union(shape, name, default, depth)
        case shapes.StructType() | shapes.NamedTupleType():
            return _struct(shape, depth)
        case shapes.ListType() | shapes.VarTupleType() | shapes.SetType() | shapes.FrozenSetType():
            items = [] if depth > DEEPEST else [_value(shape.item_type, name, msgspec.NODEFAULT, depth)]
            return items if isinstance(shape, shapes.ListType) else tuple(items)
        case shapes.TupleType():
            return tuple(_value(item, name, msgspec.NODEFAULT, depth) for item in shape.item_types)
        case shapes.DictType():
            return {
                _value(shape.key_type, name, msgspec.NODEFAULT, depth): _value(
                    shape.value_type, name, msgspec.NODEFAULT, depth
                )
            }
        case shapes.LiteralType():
            return next(value for value in reversed(shape.values) if value != default)
        case shapes.EnumType():
            return next(value for value in reversed(list(shape.cls)) if value != default)
    return _plain(shape, name, default)


def _of_union(shape: shapes.UnionType, name: str, default: Any, depth: int) -> Any:
    members = [member for member in shape.types if not isinstance(member, shapes.NoneType)]
    if depth > DEEPEST and len(members) < len(shape.types):
        return None
    return _value(min(members, key=_size), name, default, depth)


def _size(shape: shapes.Type) -> tuple[int, str]:
    """Small types first: the smallest struct of a union ends a recursion."""
    return (len(shape.fields), str(shape.tag)) if isinstance(shape, shapes.StructType) else (-1, type(shape).__name__)


def _plain(shape: shapes.Type, name: str, default: Any) -> Any:
    match shape:
        case shapes.BoolType():
            return default is not True
        case shapes.IntType():
            return 7 if default != 7 else 8
        case shapes.FloatType():
            return 1.5
        case shapes.StrType():
            return name
        case shapes.BytesType():
            return name.encode()
        case shapes.AnyType():
            return [name]
    raise TypeError(f"no example of {shape!r}")


if __name__ == "__main__":
    BYTES.write_text("".join(f"{line}\n" for line in lines()))
