"""How values are sorted: nulls last when ascending, first when descending."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from ackwise.core.graph.values import Entity


def sort_text(values: Iterable[tuple[Any, bool]]) -> str:
    """Values with their directions as one text, ordered byte by byte as they are: what an index can keep."""
    return "".join(_key(value, descending) for value, descending in values)


def _key(value: Any, descending: bool) -> str:
    raw = _bytes(value)
    return (bytes(255 - byte for byte in raw) if descending else raw).hex()


def _bytes(value: Any) -> bytes:
    """A tag, then the value; texts end with a zero, and no zero is in them."""
    if value is None:
        return b"\x09"
    if isinstance(value, Entity):
        value = value.id
    if isinstance(value, str):
        return b"\x03" + value.encode("utf-8", "replace").replace(b"\0", b"") + b"\0"
    number = float(value)
    packed = struct.pack(">d", number + 0.0)
    # Negative numbers are stored by their complement, positive ones above them.
    ordered = bytes(255 - byte for byte in packed) if packed[0] & 0x80 else bytes([packed[0] | 0x80]) + packed[1:]
    exact = int(value) - int(number) if isinstance(value, int) else 0
    return b"\x02" + ordered + (exact + (1 << 15)).to_bytes(2, "big")
