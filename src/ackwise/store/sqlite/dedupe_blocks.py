"""Sealed key blocks and their Bloom filter. Uses numpy if it is installed."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

Places = dict[int, "int | tuple[int, ...]"]
"""Hash to its place (a message position), or to several places in the order they were added."""


def _put(places: Places, h: int, pos: int) -> None:
    known = places.get(h)
    if known is None:
        places[h] = pos
    else:
        places[h] = (known, pos) if isinstance(known, int) else (*known, pos)


def add_places(known: Places, hashes: list[int], places: Sequence[int]) -> None:
    new = dict(zip(hashes, places, strict=True))
    if len(new) == len(hashes) and known.keys().isdisjoint(hashes):
        known.update(new)
        return
    for h, pos in zip(hashes, places, strict=True):
        _put(known, h, pos)


def places_of(places: Places, h: int) -> list[int]:
    known = places.get(h, ())
    return [known] if isinstance(known, int) else list(known)


def place_runs(runs: bytes | list[int]) -> Iterator[tuple[int, int]]:
    """Consecutive places as pairs (start, count)."""
    numbers = array("q", runs)
    return zip(numbers[::2], numbers[1::2], strict=True)


def bucket_of(h: int) -> int:
    """The bucket of a hash: one of 4096 per generation."""
    return h >> 52


def key_blocks(places: Places) -> tuple[Sequence[int], Iterable[tuple[int, bytes]]]:
    """The sorted hashes, and one block per bucket. A block contains its hashes and then their places."""
    np = numpy_for(len(places))
    if np is None or not places or tuple in set(map(type, places.values())):
        hashes = sorted(places)
        return hashes, _plain_blocks(places, hashes)
    keys = np.fromiter(places.keys(), np.int64, len(places))
    order = np.argsort(keys)
    keys = keys[order]
    return keys, _vector_blocks(np, keys, np.fromiter(places.values(), np.int64, len(places))[order])


def _plain_blocks(places: Places, hashes: list[int]) -> Iterator[tuple[int, bytes]]:
    lo = 0
    while lo < len(hashes):
        bucket = bucket_of(hashes[lo])
        hi = bisect_left(hashes, bucket + 1 << 52, lo)
        of_bucket = hashes[lo:hi]
        positions: list[Any] = list(map(places.__getitem__, of_bucket))
        if tuple in set(map(type, positions)):
            positions = [pos for h in of_bucket for pos in places_of(places, h)]
            of_bucket = [h for h in of_bucket for _ in places_of(places, h)]
        yield bucket, array("q", [*of_bucket, *positions]).tobytes()
        lo = hi


def _vector_blocks(np: Any, keys: Any, places: Any) -> Iterator[tuple[int, bytes]]:
    buckets: Any = bucket_of(keys)
    bounds = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(keys)]
    for lo, hi in pairwise(bounds):
        yield int(buckets[lo]), keys[lo:hi].tobytes() + places[lo:hi].tobytes()


_SLOTS = 1 << 24
_MASK = _SLOTS - 1


def _three_bits() -> list[int]:
    """256 bytes with three bits set. Each of the 56 possible patterns occurs about equally often."""
    patterns = [value for value in range(256) if value.bit_count() == 3]
    return [patterns[i * len(patterns) // 256] for i in range(256)]


_PATTERNS = _three_bits()


class BloomFilter:
    """Bloom filter with one byte per key, in which three bits are set. It never excludes a key that was added."""

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

    def candidates(self, hashes: list[int]) -> list[int]:
        """The hashes that the filter does not exclude."""
        np = numpy_for(len(hashes))
        if np is not None:
            slots, at, bits = self._vectors(np, hashes)
            return [hashes[i] for i in np.flatnonzero(bits & ~slots[at] == 0).tolist()]
        plain, patterns = self.slots, _PATTERNS
        return [h for h in hashes if not patterns[h & 255] & ~plain[h >> 40 & _MASK]]

    def _vectors(self, np: Any, hashes: Sequence[int]) -> tuple[Any, Any, Any]:
        """The slots as an array, the slot of each key, and the bits that the key sets."""
        keys = np.array(hashes, np.int64)
        patterns = np.array(_PATTERNS, np.uint8)
        return np.frombuffer(self.slots, np.uint8), keys >> 40 & _MASK, patterns[keys & 255]


WORTH_LOADING = 100_000
WORTH_USING = 50


def numpy_for(numbers: int) -> Any:
    """numpy, if it is installed and faster for this many numbers. None otherwise.

    Between `WORTH_USING` and `WORTH_LOADING` numbers, numpy is used only if it is already imported.
    """
    if numbers < WORTH_USING or (numbers < WORTH_LOADING and "numpy" not in sys.modules):
        return None
    try:
        import numpy as np
    except ImportError:
        return None
    return np
