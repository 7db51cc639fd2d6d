"""Pool of read connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg

from ackwise.core.errors import StoreUnavailable
from ackwise.store.postgres.connection import Database, is_connection_lost
from ackwise.store.postgres.session import PostgresSession

T = TypeVar("T")
_SNAPSHOT = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class ReaderPool:
    """At most `most` read connections. The pool replaces broken ones."""

    def __init__(self, database: Database, most: int) -> None:
        self._database = database
        self._free: list[PostgresSession] = []
        self._room = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._closed = False

    def run(self, job: Callable[[PostgresSession], T], *, snapshot: bool = True) -> T:
        """Run a job that reads. With `snapshot`, all its statements see the same state of the database.

        After a lost connection the job runs once more.
        """
        with self._database.translated_errors():
            try:
                return self._run(job, snapshot)
            except psycopg.Error as problem:
                if not is_connection_lost(problem):
                    raise
                self._database.health.note_lost(problem)
            self._close_idle()
            return self._run(job, snapshot)

    def _run(self, job: Callable[[PostgresSession], T], snapshot: bool) -> T:
        with self._use() as session:
            if not snapshot:
                return job(session)
            session.begin(_SNAPSHOT)
            try:
                return job(session)
            finally:
                if not session.connection.closed:
                    session.end(b"ROLLBACK")

    @contextmanager
    def _use(self) -> Iterator[PostgresSession]:
        with self._room:
            session = self._take() or PostgresSession(self._database.connect())
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
        """Return a session to the pool. A closed pool closes it."""
        with self._lock:
            if not self._closed and not session.connection.closed:
                self._free.append(session)
                return
        session.connection.close()

    def _close_idle(self) -> None:
        """Close all idle connections. After a restart of the server all of them are broken."""
        with self._lock:
            free, self._free = self._free, []
        for session in free:
            session.connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._close_idle()
