"""A column of texts on its way into another process: as Arrow has it, in two pieces, not one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
import pyarrow as pa


class Texts(Sequence[bytes]):
    """The UTF-8 of each text."""

    __slots__ = ("_data", "_ends")

    def __init__(self, data: bytes, ends: bytes) -> None:
        self._data, self._ends = data, ends

    @classmethod
    def of(cls, column: pa.Array) -> Texts:
        """Every payload is there, and Spark has two kinds of columns for texts."""
        _, places, data = column.buffers()
        kind = np.int64 if pa.types.is_large_string(column.type) else np.int32
        ends = np.frombuffer(places, kind)[column.offset : column.offset + len(column) + 1].astype(np.int64)
        text = b"" if data is None else memoryview(data)[ends[0] : ends[-1]].tobytes()
        return cls(text, (ends - ends[0]).tobytes())

    def __reduce__(self) -> tuple[type[Texts], tuple[bytes, bytes]]:
        return type(self), (self._data, self._ends)

    def __len__(self) -> int:
        return len(self._ends) // 8 - 1

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return list(self)[at]
        ends = memoryview(self._ends).cast("q")
        return self._data[ends[at] : ends[at + 1]]

    def __iter__(self) -> Iterator[bytes]:
        ends = memoryview(self._ends).cast("q").tolist()
        data = self._data
        return (data[lo:hi] for lo, hi in pairwise(ends))
