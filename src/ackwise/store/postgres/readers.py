"""A few connections that only read, beside the writers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg

from ackwise.core.errors import StoreUnavailable
from ackwise.store.postgres.connection import Server, lost
from ackwise.store.postgres.session import PostgresSession

T = TypeVar("T")
_SNAPSHOT = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Readers:
    """At most `most` connections at once; one that broke is replaced."""

    def __init__(self, server: Server, most: int) -> None:
        self._server = server
        self._free: list[PostgresSession] = []
        self._room = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._closed = False

    def ask(self, verb: Callable[[PostgresSession], T], *, snapshot: bool = True) -> T:
        """Run `verb`, all of whose statements see the same instant unless it has only one that matters."""
        with self._server.our_errors():
            try:
                return self._ask(verb, snapshot)
            except psycopg.Error as problem:
                if not lost(problem):
                    raise
            self._forget_idle()
            return self._ask(verb, snapshot)

    def _ask(self, verb: Callable[[PostgresSession], T], snapshot: bool) -> T:
        with self._use() as session:
            if not snapshot:
                return verb(session)
            session.begin(_SNAPSHOT)
            try:
                return verb(session)
            finally:
                if not session.connection.closed:
                    session.end(b"ROLLBACK")

    @contextmanager
    def _use(self) -> Iterator[PostgresSession]:
        with self._room:
            session = self._take() or PostgresSession(self._server.connect())
            try:
                yield session
            finally:
                self._put(session)

    def _take(self) -> PostgresSession | None:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            return self._free.pop() if self._free else None

    def _put(self, session: PostgresSession) -> None:
        """One that comes back after the store was closed is closed, too."""
        with self._lock:
            if not self._closed and not session.connection.closed:
                self._free.append(session)
                return
        session.connection.close()

    def _forget_idle(self) -> None:
        """After a restart of the server every idle connection is dead, not only the one that noticed."""
        with self._lock:
            free, self._free = self._free, []
        for session in free:
            session.connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._forget_idle()
