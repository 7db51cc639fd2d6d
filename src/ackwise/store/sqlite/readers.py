"""Read connections beside the writer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from ackwise.core.errors import StoreUnavailable
from ackwise.store.session import Session
from ackwise.store.sqlite.connection import our_errors
from ackwise.store.sqlite.session import SQLiteSession


class Readers:
    """A bounded number of read connections: more would only take the interpreter from the writer."""

    def __init__(self, make: Callable[[], apsw.Connection], most: int, path: str) -> None:
        self._make, self._path = make, path
        self._free: list[apsw.Connection] = []
        self._room = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def use(self) -> Iterator[Session]:
        with self._room, our_errors(self._path):
            connection = self._take() or self._make()
            try:
                connection.execute("BEGIN").fetchall()
                yield SQLiteSession(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK").fetchall()
                self._put(connection)

    def _take(self) -> apsw.Connection | None:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            return self._free.pop() if self._free else None

    def _put(self, connection: apsw.Connection) -> None:
        """One that comes back after the store was closed is closed, too."""
        with self._lock:
            if not self._closed:
                self._free.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for connection in free:
            connection.close()
