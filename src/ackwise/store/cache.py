"""Segments kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict

from ackwise.store.segment import Segment


class SegmentCache:
    """The newest segments, so that a consumer close behind the producer reads from memory; and of each lane the one
    that was read last, so that a consumer that takes one message at a time does not read it again for each."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._segments: OrderedDict[tuple[int, int], Segment] = OrderedDict()
        self._last: dict[int, Segment] = {}
        self._last_size = 0
        self._lock = threading.Lock()

    def put(self, segment: Segment) -> None:
        with self._lock:
            self._segments[segment.lane, segment.first] = segment
            self._size += len(segment)
            while self._size > self._most:
                _, old = self._segments.popitem(last=False)
                self._size -= len(old)

    def get(self, lane: int, lo: int, hi: int) -> list[Segment] | None:
        """All of [lo, hi) or None."""
        found = []
        while lo < hi:
            segment = self._segments.get((lane, lo)) or self._last.get(lane)
            if segment is None or not segment.first <= lo <= segment.last:
                return None
            found.append(segment)
            lo = segment.last + 1
        if found and hi <= found[-1].last:
            self.remember(found[-1])
        return found

    def remember(self, segment: Segment) -> None:
        """It was read, and not to its end."""
        with self._lock:
            if self._last_size > self._most // 4:
                self._last.clear()
                self._last_size = 0
            if self._last.get(segment.lane) is not segment:
                self._last[segment.lane] = segment
                self._last_size += len(segment)
