"""Segments kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict

from ackwise.store.segment import Segment


class SegmentCache:
    """The newest segments, so that a consumer close behind the producer reads from memory."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._segments: OrderedDict[tuple[int, int], Segment] = OrderedDict()
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
            segment = self._segments.get((lane, lo))
            if segment is None:
                return None
            found.append(segment)
            lo = segment.last + 1
        return found
