"""Which keys a shelf of transaction ids surely does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ackwise.store.sqlite.vectors import numpy_for

_SLOTS = 1 << 24
_MASK = _SLOTS - 1


def _three_bits() -> list[int]:
    """256 patterns of three of eight bits, each of the 56 about equally often."""
    patterns = [value for value in range(256) if value.bit_count() == 3]
    return [patterns[i * len(patterns) // 256] for i in range(256)]


_PATTERNS = _three_bits()


class Filter:
    """Three bits in one byte per key: one read says "surely not". It never says so of a key it has."""

    __slots__ = ("slots",)

    def __init__(self, slots: bytes | None = None) -> None:
        self.slots = bytearray(slots) if slots is not None else bytearray(_SLOTS)

    def add(self, hashes: Sequence[int]) -> None:
        np = numpy_for(len(hashes))
        if np is not None:
            slots, at, bits = self._vectors(np, hashes)
            np.bitwise_or.at(slots, at, bits)
            return
        plain = self.slots
        for h in hashes:
            plain[h >> 40 & _MASK] |= _PATTERNS[h & 255]

    def maybe(self, hashes: list[int]) -> list[int]:
        np = numpy_for(len(hashes))
        if np is not None:
            slots, at, bits = self._vectors(np, hashes)
            return [hashes[i] for i in np.flatnonzero(bits & ~slots[at] == 0).tolist()]
        plain, patterns = self.slots, _PATTERNS
        return [h for h in hashes if not patterns[h & 255] & ~plain[h >> 40 & _MASK]]

    def _vectors(self, np: Any, hashes: Sequence[int]) -> tuple[Any, Any, Any]:
        """The slots, and for each key which one it has and the bits it sets there."""
        keys = np.array(hashes, np.int64)
        patterns = np.array(_PATTERNS, np.uint8)
        return np.frombuffer(self.slots, np.uint8), keys >> 40 & _MASK, patterns[keys & 255]
