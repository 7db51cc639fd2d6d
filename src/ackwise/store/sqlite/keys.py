"""Keys of transaction ids: 64-bit hashes, and the places where messages with them are. In memory, and as blocks."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from ackwise.store.sqlite.vectors import numpy_for

Places = dict[int, "int | tuple[int, ...]"]
"""Hash to its place, or to several in the order they were added."""


def _put(places: Places, h: int, pos: int) -> None:
    known = places.get(h)
    if known is None:
        places[h] = pos
    else:
        places[h] = (known, pos) if isinstance(known, int) else (*known, pos)


def remember(known: Places, hashes: list[int], places: Sequence[int]) -> None:
    new = dict(zip(hashes, places, strict=True))
    if len(new) == len(hashes) and known.keys().isdisjoint(hashes):
        known.update(new)
        return
    for h, pos in zip(hashes, places, strict=True):
        _put(known, h, pos)


def known_places(places: Places, h: int) -> list[int]:
    known = places.get(h, ())
    return [known] if isinstance(known, int) else list(known)


def pairs(runs: bytes | list[int]) -> Iterator[tuple[int, int]]:
    """(start, count) runs of places."""
    numbers = array("q", runs)
    return zip(numbers[::2], numbers[1::2], strict=True)


def bucket_of(h: int) -> int:
    """Which of 4096 blocks of a generation a hash is in."""
    return h >> 52


def blocks(places: Places) -> tuple[Sequence[int], Iterable[tuple[int, bytes]]]:
    """The hashes in order, and cut into buckets: each block has its hashes, then their places."""
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
        mine = hashes[lo:hi]
        found: list[Any] = list(map(places.__getitem__, mine))
        if tuple in set(map(type, found)):
            found = [pos for h in mine for pos in known_places(places, h)]
            mine = [h for h in mine for _ in known_places(places, h)]
        yield bucket, array("q", [*mine, *found]).tobytes()
        lo = hi


def _vector_blocks(np: Any, keys: Any, places: Any) -> Iterator[tuple[int, bytes]]:
    buckets: Any = bucket_of(keys)
    bounds = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(keys)]
    for lo, hi in pairwise(bounds):
        yield int(buckets[lo]), keys[lo:hi].tobytes() + places[lo:hi].tobytes()
