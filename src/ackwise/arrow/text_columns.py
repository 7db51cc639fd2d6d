"""Text columns built with numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ackwise.core import ids

Numbers = Any
"""A numpy array."""

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_BASE36 = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyz", np.uint8)
_AT = np.array([at for at in range(36) if at not in (8, 13, 18, 23)])
"""Positions of the hexadecimal digits in a UUID's text."""


def fixed(letters: Numbers) -> pa.Array:
    """A column of texts of equal length, from a matrix with one row of bytes per text."""
    count, width = letters.shape
    offsets = np.arange(0, width * count + 1, width, dtype=np.int32) if count else np.zeros(1, np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(letters.tobytes())])


def uuids(numbers: Numbers) -> pa.Array:
    """A column of UUIDs as text, from a matrix with 16 bytes per id."""
    letters = np.full((len(numbers), 36), ord("-"), np.uint8)
    digits = np.empty((len(numbers), 32), np.uint8)
    digits[:, 0::2] = numbers >> 4
    digits[:, 1::2] = numbers & 15
    letters[:, _AT] = _HEX[digits]
    return fixed(letters)


def counted_ids(first: int, count: int) -> Numbers:
    """`count` ids that count up from `first`, as 16 bytes each."""
    low = first & 0xFFFF_FFFF_FFFF_FFFF
    if low + count > 0xFFFF_FFFF_FFFF_FFFF:
        spelled = b"".join((first + at).to_bytes(16, "big") for at in range(count))
        return np.frombuffer(spelled, np.uint8).reshape(count, 16)
    halves = np.empty((count, 2), ">u8")
    halves[:, 0] = first >> 64
    halves[:, 1] = np.arange(count, dtype=np.uint64) + np.uint64(low)
    return halves.view(np.uint8)


def minted_at(numbers: Numbers) -> Numbers:
    """The latest possible creation time of each id, in microseconds. An id holds only milliseconds."""
    millis = np.zeros(len(numbers), np.int64)
    for at in range(6):
        millis = millis << 8 | numbers[:, at]
    return millis * 1000 + 999


def delivery_ids(no: int, tag: int, lane: int, seqs: Numbers) -> pa.Array:
    """A column of delivery ids for messages of one lane. `seqs` must ascend."""
    prefix = np.frombuffer(ids.delivery_prefix(no, tag, lane).encode(), np.uint8)
    pieces = []
    lo = 0
    while lo < len(seqs):
        width = _width(int(seqs[lo]))
        hi = int(np.searchsorted(seqs, 36**width))
        letters = np.empty((hi - lo, len(prefix) + width), np.uint8)
        letters[:, : len(prefix)] = prefix
        rest = seqs[lo:hi].astype(np.uint64)
        for at in range(width):
            rest, digit = np.divmod(rest, np.uint64(36))
            letters[:, -1 - at] = _BASE36[digit.astype(np.intp)]
        pieces.append(fixed(letters))
        lo = hi
    return joined(pieces)


def _width(number: int) -> int:
    width = 1
    while number >= 36**width:
        width += 1
    return width


def joined(pieces: Sequence[pa.Array], kind: pa.DataType | None = None) -> pa.Array:
    """Concatenate arrays. Without any, returns an empty array of `kind`."""
    if not pieces:
        return pa.array([], kind or pa.string())
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def cells(pieces: Sequence[tuple[bytes, memoryview]], kind: pa.DataType) -> tuple[pa.Array, Numbers]:
    """Join packed columns (int32 offsets and bytes) to one column. Returns it with the length of each cell."""
    lengths = np.concatenate([np.diff(np.frombuffer(offsets, "<i4")) for offsets, _ in pieces])
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    large = offsets[-1] > 2**31 - 1
    stored = offsets if large else offsets.astype(np.int32)
    made = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}[kind] if large else kind
    data = b"".join([data for _, data in pieces])
    return pa.Array.from_buffers(made, len(lengths), [None, pa.py_buffer(stored), pa.py_buffer(data)]), lengths
