"""Catalog rows and segments kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ackwise.core.lane_range import LaneRange
from ackwise.engine.ports import Params, Row
from ackwise.engine.segment import Segment

if TYPE_CHECKING:
    from ackwise.store.port import ReadSegments

CATALOG_STATEMENTS = frozenset(
    ("queue_by_name", "queue_by_id", "group_by_name", "group_by_id", "part_by_name", "part_by_id", "part_by_uuid")
)
_MOST_ROWS = 20_000
_CHANGING = ("queue_", "part_", "group_")


class _Changes(dict[str, bool]):
    """Whether a statement may change cached rows, by its name. Decides once for each name."""

    def __init__(self, prefixes: tuple[str, ...]) -> None:
        super().__init__()
        self._prefixes = prefixes

    def __missing__(self, name: str) -> bool:
        changes = self[name] = name.startswith(self._prefixes)
        return changes


class RowCache:
    """Cache of rows by statement and parameters. A statement that may change cached rows clears the cache.

    Every statement of a turn asks `names` and `changes`, so these are plain containers: a session looks without a call.
    """

    def __init__(self, names: frozenset[str] = CATALOG_STATEMENTS, changed_by: tuple[str, ...] = ()) -> None:
        self.names = names
        """Statements whose rows are cached."""
        self.changes = _Changes(_CHANGING + changed_by)
        """Whether a statement that is not cached clears the cache."""
        self.rows: dict[tuple[object, ...], Row] = {}
        """Rows by (statement, *parameters)."""

    def put(self, name: str, params: Params, row: Row) -> None:
        if len(self.rows) >= _MOST_ROWS:
            self.rows.clear()
        self.rows[(name, *params.values())] = row


class SegmentCache:
    """Segments kept in memory, up to `most` bytes. `load` reads the others from the database.

    The newest segments serve consumers that follow a producer closely. The last segment read of each lane serves
    consumers that take a few messages of a segment at a time.
    """

    def __init__(self, most: int, load: ReadSegments) -> None:
        self._most, self._size, self._load = most, 0, load
        self._segments: OrderedDict[tuple[int, int], Segment] = OrderedDict()
        self._last: dict[int, Segment] = {}
        self._last_size = 0
        self._lock = threading.Lock()

    def read(self, ranges: Sequence[LaneRange], room: int | None = None) -> list[list[Segment]]:
        """The segments of each range, from memory if all of them are there."""
        cached: list[list[Segment]] = []
        for lane, lo, hi in ranges if room is None else ():
            segments = self.get(lane, lo, hi)
            if segments is None:
                break
            cached.append(segments)
        if len(cached) == len(ranges):
            return cached
        loaded = self._load(ranges, room)
        for (_, _, hi), segments in zip(ranges, loaded, strict=True):
            if segments and hi <= segments[-1].last:
                self.put_last_read(segments[-1])
        return loaded

    def put(self, segment: Segment) -> None:
        with self._lock:
            self._segments[segment.lane, segment.first] = segment
            self._size += segment.size
            while self._size > self._most:
                _, old = self._segments.popitem(last=False)
                self._size -= old.size

    def get(self, lane: int, lo: int, hi: int) -> list[Segment] | None:
        """The segments of messages [lo, hi). None if one is not in memory."""
        segments = []
        while lo < hi:
            segment = self._segments.get((lane, lo)) or self._last.get(lane)
            if segment is None or not segment.first <= lo <= segment.last:
                return None
            segments.append(segment)
            lo = segment.last + 1
        if segments and hi <= segments[-1].last:
            self.put_last_read(segments[-1])
        return segments

    def put_last_read(self, segment: Segment) -> None:
        """Keep a segment that was not read to its end."""
        with self._lock:
            if self._last_size > self._most // 4:
                self._last.clear()
                self._last_size = 0
            if self._last.get(segment.lane) is not segment:
                self._last[segment.lane] = segment
                self._last_size += segment.size
