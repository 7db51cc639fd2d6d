"""The PostgreSQL store: writers sharded by queue, a few readers, and a thread for news between brokers."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import TypeVar

from psycopg import errors as pg

from ackwise.core.commands import Command
from ackwise.core.errors import AckwiseError, StoreError, StoreUnavailable
from ackwise.store import instances, reads
from ackwise.store.clock import Clock
from ackwise.store.port import Result
from ackwise.store.postgres.connection import Server, lost
from ackwise.store.postgres.dedupe import TableDedupe
from ackwise.store.postgres.news import News
from ackwise.store.postgres.queueing import Queueing
from ackwise.store.postgres.readers import Readers
from ackwise.store.postgres.schema import migrate
from ackwise.store.postgres.session import PostgresSession
from ackwise.store.postgres.writer import Writer
from ackwise.store.segment import Segment
from ackwise.store.session import Known, Session
from ackwise.store.turn.context import Turn
from ackwise.store.url import StoreURL, parse
from ackwise.store.verbs import ReadVerbs

T = TypeVar("T")
READERS = 4
LONG_READERS = 2


class PreparedTurn:
    """A turn whose statements have run; its writer is taken until `commit` or `abandon`."""

    light = False

    def __init__(self, store: PostgresStore, writer: Writer, turn: Turn, results: list[Result]) -> None:
        self._store, self._writer, self._turn = store, writer, turn
        self._ending = threading.Lock()
        self.results = results
        self.woken = turn.woken

    def commit(self) -> None:
        if self._ending.acquire(blocking=False):
            self._store.commit(self._writer, self._turn)

    def abandon(self) -> None:
        if self._ending.acquire(blocking=False):
            try:
                self._writer.roll_back()
            finally:
                self._writer.lock.release()


class CommittedTurns:
    """Commands that could not run together and were committed one by one."""

    light = True

    def __init__(self, results: list[Result], woken: dict[str, int]) -> None:
        self.results, self.woken = results, woken

    def commit(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class PostgresStore(ReadVerbs):
    """Queues in one database that several brokers share."""

    local = False
    busy = False

    def __init__(
        self,
        url: str | StoreURL,
        *,
        clock: Clock | None = None,
        instance: str | None = None,
        seed: int | None = None,
        readers: int = READERS,
    ) -> None:
        self.url = parse(url) if isinstance(url, str) else url
        self.shards = self.url.shards
        self.clock = clock
        self.instance = instance or instances.mint()
        self.on_change: Callable[[], None] | None = None
        self._changed = False
        self._closed = False
        self._server = Server(self.url)
        self._offset = 0
        self._seed = self._open()
        lanes: dict[int, int] = {}
        rounds: dict[str, int] = {}
        self._writers = [
            Writer(
                self._server,
                name=f"{self.instance}/{number}",
                instance=self.instance,
                seed=self._seed,
                dice=random.Random(os.urandom(16) if seed is None else seed + number),  # noqa: S311
                now=self._turn_now,
                lanes=lanes,
                rounds=rounds,
            )
            for number in range(self.shards)
        ]
        self._readers = Readers(self._server, readers)
        self._long_readers = Readers(self._server, LONG_READERS)
        self._news = News(self._server, self.instance, self._heard)

    def _open(self) -> bytes:
        """Make or check the tables, and learn the seed of the transaction ids' hashes."""
        with self._server.our_errors(), self._server.connect() as connection:
            migrate(connection, self._server.where)
            session = PostgresSession(connection)
            self._turn_now(session)
            return bytes.fromhex(session.rows("meta_get", {"key": "seed"})[0][0])

    # writing

    def transact(self, commands: Sequence[Command], shard: int = 0) -> list[Result]:
        prepared = self.prepare(commands, shard)
        prepared.commit()
        return prepared.results

    def prepare(self, commands: Sequence[Command], shard: int = 0) -> PreparedTurn | CommittedTurns:
        """Plan and apply. When a statement fails unexpectedly the commands are tried again one by one."""
        try:
            return self._prepare(commands, shard)
        except Exception as problem:
            if len(commands) <= 1 or lost(problem) or self._closed:
                raise self._server.translated(problem) from problem
            locked = isinstance(problem, pg.LockNotAvailable)
        return self._one_by_one(commands, shard, Queueing(self.url.busy_timeout) if locked else None)

    def _prepare(self, commands: Sequence[Command], shard: int, patience: float | None = None) -> PreparedTurn:
        writer = self._writers[shard % self.shards]
        writer.lock.acquire()
        try:
            self._check_open()
            turn, results = writer.attempt(commands, patience)
            return PreparedTurn(self, writer, turn, results)
        except BaseException:
            writer.roll_back()
            writer.lock.release()
            raise

    def _one_by_one(self, commands: Sequence[Command], shard: int, queueing: Queueing | None) -> CommittedTurns:
        """Each command in a turn of its own: the one that failed fails alone."""
        results: list[Result] = []
        woken: dict[str, int] = {}
        for command in commands:
            try:
                with self._server.our_errors(), queueing.turn(command) if queueing else nullcontext() as patience:
                    prepared = self._prepare([command], shard, patience)
                prepared.commit()
                results += prepared.results
                for queue, count in prepared.woken.items():
                    woken[queue] = woken.get(queue, 0) + count
            except AckwiseError as problem:
                results.append(problem)
            except Exception as problem:  # a bug: it must not fail those who share the turn
                results.append(AckwiseError(f"unexpected {type(problem).__name__}: {problem}"))
        return CommittedTurns(results, woken)

    def commit(self, writer: Writer, turn: Turn) -> None:
        try:
            writer.commit(turn)
        finally:
            writer.lock.release()
        if turn.announced:
            self._news.tell(turn.announced)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")

    # reading

    def _look(self, job: Callable[[Session], T]) -> T:
        return self._readers.ask(job)

    def _look_long(self, job: Callable[[Session], T]) -> T:
        return self._long_readers.ask(job)

    def _known(self, session: Session) -> Known:
        return TableDedupe(session)

    def read(self, ranges: Sequence[tuple[int, int, int]]) -> list[list[Segment]]:
        return self._readers.ask(lambda session: reads.read(session, ranges), snapshot=False)

    # housekeeping

    def now(self) -> int:
        """The database's clock, carried on from the last turn without asking again."""
        return self.clock.now() if self.clock is not None else time.monotonic_ns() // 1000 + self._offset

    def _turn_now(self, session: PostgresSession) -> int:
        if self.clock is not None:
            return self.clock.now()
        now = int(session.rows("clock")[0][0])
        self._offset = now - time.monotonic_ns() // 1000
        return now

    def flush_ledger(self) -> None:
        """Write the counts gathered in memory."""
        for shard, writer in enumerate(self._writers):
            if writer.counting:
                writer.count_now()
                self.transact([], shard)

    def _heard(self) -> None:
        self._changed = True
        if self.on_change is not None:
            self.on_change()

    def listening(self, timeout: float) -> bool:
        """Wait until other brokers are heard."""
        return self._news.wait_until_listening(timeout)

    def changed(self) -> bool:
        """Whether another broker said that something became claimable since the last call."""
        changed, self._changed = self._changed, False
        return changed

    def notes(self) -> list[str]:
        """No hints: autovacuum frees space."""
        return []

    def maintain(self) -> None:
        """Autovacuum does it."""

    def close(self) -> None:
        if self._closed:
            return
        with suppress(StoreError):
            self.flush_ledger()
        self._closed = True
        instances.closed(self.instance)
        self._news.close()
        self._readers.close()
        self._long_readers.close()
        for writer in self._writers:
            with writer.lock:
                writer.drop()
