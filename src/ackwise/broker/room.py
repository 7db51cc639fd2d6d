"""Waiting rooms: a bounded number of places. One caller gets at most half of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ackwise.core.errors import Overloaded


class WaitingRoom:
    """Places for work that waits. One caller cannot take them all, so that another caller still gets a place."""

    def __init__(self, most: int, what: str) -> None:
        """`what` says in an error what the work does, as in "long texts wait to be parsed"."""
        self._most, self._each, self._what = most, max(1, most // 2), what
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    @contextmanager
    def place(self, caller: str) -> Iterator[None]:
        """Hold a place while the block runs. Raises `Overloaded` when the room, or the caller's half, is full."""
        with self._lock:
            if self._taken.total() >= self._most:
                raise Overloaded(f"{self._most} {self._what}; try again in a moment")
            if self._taken[caller] >= self._each:
                raise Overloaded(f"{self._each} of your {self._what}; try again in a moment")
            self._taken[caller] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[caller] -= 1
                if not self._taken[caller]:
                    del self._taken[caller]
