"""Pool of read connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from ackwise.core.errors import StoreUnavailable
from ackwise.engine.ports import Session
from ackwise.store.sqlite.connection import translated_errors
from ackwise.store.sqlite.session import SQLiteSession


class ReaderPool:
    """Pool of at most `most` read connections. More readers would compete with the writer for the GIL."""

    def __init__(self, make: Callable[[], apsw.Connection], most: int, path: str) -> None:
        self._make, self._most, self._path = make, most, path
        self._free: list[SQLiteSession] = []
        self._room = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def use(self) -> Iterator[Session]:
        with self._room, translated_errors(self._path):
            session = self._take() or SQLiteSession(self._make())
            connection = session.connection
            try:
                connection.execute("BEGIN").fetchall()
                yield session
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK").fetchall()
                self._put(session)

    @contextmanager
    def paused(self, seconds: float) -> Iterator[bool]:
        """Let running reads end, up to `seconds`, and begin no read inside the block. Yields whether all have ended."""
        end = time.monotonic() + seconds
        taken = 0
        try:
            while taken < self._most and self._room.acquire(timeout=max(0.0, end - time.monotonic())):
                taken += 1
            yield taken == self._most
        finally:
            if taken:
                self._room.release(taken)

    def _take(self) -> SQLiteSession | None:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            return self._free.pop() if self._free else None

    def _put(self, session: SQLiteSession) -> None:
        """Return a session to the pool. A closed pool closes it."""
        with self._lock:
            if not self._closed:
                self._free.append(session)
                return
        session.connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for session in free:
            session.connection.close()
