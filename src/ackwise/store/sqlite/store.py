"""The SQLite store: one write connection whose turns are serialised, a few read connections beside it."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import apsw

from ackwise.core.commands import Command
from ackwise.core.errors import AckwiseError, OutcomeUnknown, StoreError, StoreFull, StoreUnavailable
from ackwise.store import instances, reads
from ackwise.store.cache import SegmentCache
from ackwise.store.clock import Clock, SystemClock
from ackwise.store.port import SHORT_READ, Result
from ackwise.store.segment import Segment
from ackwise.store.session import Known, Session
from ackwise.store.sqlite import vacuum
from ackwise.store.sqlite.connection import open_reader, open_writer, our_errors, translated
from ackwise.store.sqlite.dedupe import GENERATION, GenerationalDedupe, StoredKeys
from ackwise.store.sqlite.readers import Readers
from ackwise.store.sqlite.session import WriterSession
from ackwise.store.turn import engine
from ackwise.store.turn.context import Tally, Turn, added
from ackwise.store.url import StoreURL, parse
from ackwise.store.verbs import ReadVerbs

T = TypeVar("T")
LEDGER_EVERY = 1_000_000
CHECKPOINT_BYTES = 8 << 20
RESTART_BYTES = 64 << 20
CACHE_BYTES = 8 << 20


class PreparedTurn:
    """A turn whose statements have run; the write lock is held until `commit` or `abandon`."""

    def __init__(
        self, store: SQLiteStore, turn: Turn, commands: Sequence[Command], results: list[Result], *, light: bool
    ) -> None:
        self._store, self._commands, self._turn = store, commands, turn
        self.light = light
        self._ending = threading.Lock()
        self.results = results
        self.woken = turn.woken

    def commit(self) -> None:
        """What was too much for the disk together is tried again one by one: nothing of it was done."""
        if not self._ending.acquire(blocking=False):
            return
        try:
            self._store.commit(self._turn)
        except StoreFull:
            if len(self._commands) == 1:
                raise
            again = self._store.one_by_one(self._commands)
            self.results, self.woken = again.results, again.woken

    def abandon(self) -> None:
        if self._ending.acquire(blocking=False):
            self._store.abandon()


class CommittedTurns:
    """Commands that could not run together and were committed one by one."""

    light = True

    def __init__(self, results: list[Result], woken: dict[str, int]) -> None:
        self.results, self.woken = results, woken

    def commit(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class SQLiteStore(ReadVerbs):
    """Queues in one file. Several processes may open it; each turn is one transaction of whoever leads it."""

    shards = 1
    local = True

    def __init__(
        self,
        url: str | StoreURL,
        *,
        clock: Clock | None = None,
        instance: str | None = None,
        vfs: str | None = None,
        readers: int = 2,
        dedupe_generation: int = GENERATION,
        seed: int | None = None,
    ) -> None:
        self.url = parse(url) if isinstance(url, str) else url
        self.clock = clock or SystemClock()
        self.instance = instance or instances.mint()
        self._vfs, self._generation = vfs, dedupe_generation
        self._dice = random.Random(seed if seed is not None else os.urandom(16))  # noqa: S311
        self._write_lock = threading.Lock()
        self._cache = SegmentCache(CACHE_BYTES)
        self._tally: Tally = {}
        self._ledger_at = self.clock.now()
        self._last_id = 0
        self._closed = False
        self._rounds: dict[str, int] = {}
        self._open()
        self._readers = Readers(partial(open_reader, self.url, vfs), readers, self.url.target)
        self._long_readers = Readers(partial(open_reader, self.url, vfs), readers, self.url.target)
        # Of its own: what was claimed is read on an event loop, which must not wait for somebody's long query.
        self._hand = Readers(partial(open_reader, self.url, vfs), 1, self.url.target)
        self._checkpointer = open_reader(self.url, vfs)
        self._others_wrote = False

    def _open(self) -> None:
        self._connection = open_writer(self.url, self._vfs)
        with our_errors(self.url.target):
            self._session = WriterSession(self._connection)
            row = self._session.row("meta_get", {"key": "seed"})
            assert row is not None
            self._seed = bytes.fromhex(row[0])
            self._dedupe = GenerationalDedupe(self._session, self._generation)
            self._data_version = self._watched = self._connection.pragma("data_version")
            self._trusted = True

    # writing

    @property
    def busy(self) -> bool:
        return self._write_lock.locked()

    def transact(self, commands: Sequence[Command], shard: int = 0) -> list[Result]:
        prepared = self.prepare(commands, shard)
        prepared.commit()
        return prepared.results

    def prepare(self, commands: Sequence[Command], shard: int = 0) -> PreparedTurn | CommittedTurns:
        """Plan and apply. When a statement fails unexpectedly the commands are tried again one by one."""
        self._write_lock.acquire()
        try:
            turn = self._begin()
            before = self._connection.total_changes()
            results = engine.run(turn, commands)
            self._finish(turn)
            light = self._connection.total_changes() == before
            return PreparedTurn(self, turn, commands, results, light=light)
        except Exception as problem:
            self._roll_back()
            self._write_lock.release()
            if len(commands) == 1 or isinstance(problem, apsw.BusyError | StoreUnavailable):
                raise self._explained(problem) from problem
        except BaseException:
            self._roll_back()
            self._write_lock.release()
            raise
        return self.one_by_one(commands)

    def one_by_one(self, commands: Sequence[Command]) -> CommittedTurns:
        """Each command in a turn of its own: the one that failed fails alone."""
        results: list[Result] = []
        woken: dict[str, int] = {}
        for command in commands:
            try:
                prepared = self.prepare([command])
                prepared.commit()
                results += prepared.results
                woken.update(prepared.woken)
            except AckwiseError as problem:
                results.append(problem)
            except Exception as problem:  # a bug: it must not fail those who share the turn
                results.append(AckwiseError(f"unexpected {type(problem).__name__}: {problem}"))
        return CommittedTurns(results, woken)

    def _explained(self, problem: Exception) -> Exception:
        return translated(problem, self.url.target) if isinstance(problem, apsw.Error) else problem

    def _begin(self) -> Turn:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if not self._trusted:
            self._connection.close(True)
            self._open()
        self._connection.execute("BEGIN IMMEDIATE").fetchall()
        version = self._connection.pragma("data_version")
        if version != self._data_version:
            self._session.forget()
            self._dedupe.others_wrote()
            self._others_wrote |= version != self._watched
            self._data_version = self._watched = version
        self._dedupe.begin()
        turn = Turn(
            self._session,
            self._dedupe,
            now=self.clock.now(),
            dice=self._dice,
            seed=self._seed,
            instance=self.instance,
            rounds=self._rounds,
        )
        turn.last_id = self._last_id
        return turn

    def _finish(self, turn: Turn) -> None:
        """The last statements of a turn: dedupe keys, and the ledger once a second."""
        self._dedupe.write(turn.now)
        if turn.now - self._ledger_at >= LEDGER_EVERY and (self._tally or turn.tally):
            engine.write_ledger(self._session, added(self._tally, turn.tally), self.instance)
            turn.tally = {}
            turn.ledger_written = True

    def commit(self, turn: Turn) -> None:
        """Make it durable, then known. A commit that fails half-way is said to be unknown.

        Until everything is known here too, what is in memory is not trusted: an interrupt may strike anywhere.
        """
        self._trusted = False
        try:
            self._connection.execute("COMMIT").fetchall()
        except apsw.FullError as problem:
            self._reopen()
            raise StoreFull(f"{StoreFull.__doc__} ({self.url.target})") from problem
        except Exception as problem:
            self._reopen()
            raise OutcomeUnknown(f"{OutcomeUnknown.__doc__} ({self.url.target}: {problem})") from problem
        else:
            self._dedupe.committed()
            self._last_id = turn.last_id
            if turn.ledger_written:
                self._tally, self._ledger_at = {}, turn.now
            self._tally = added(self._tally, turn.tally)
            for row in turn.written:
                self._cache.put(Segment(row["pos"], row["first"], row["created_at"], row["body"]))
            self._trusted = True
        finally:
            self._write_lock.release()

    def abandon(self) -> None:
        self._roll_back()
        self._write_lock.release()

    def _roll_back(self) -> None:
        if self._closed or not self._trusted:
            return
        self._dedupe.rolled_back()
        self._session.forget()
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK").fetchall()
            except apsw.Error:
                self._reopen()

    def _reopen(self) -> None:
        """Start again with a new connection: the old one's state is not to be trusted. If need be, at the next turn."""
        self._trusted = False
        try:
            self._connection.close(True)
            self._open()
        except (StoreError, apsw.Error):
            pass

    # reading

    def _look(self, job: Callable[[Session], T]) -> T:
        with self._readers.use() as session:
            return job(session)

    def _look_long(self, job: Callable[[Session], T]) -> T:
        with self._long_readers.use() as session:
            return job(session)

    def _known(self, session: Session) -> Known:
        return StoredKeys(session)

    def read(self, ranges: Sequence[tuple[int, int, int]]) -> list[list[Segment]]:
        found = [self._cache.get(lane, lo, hi) for lane, lo, hi in ranges]
        if all(one is not None for one in found):
            return [one for one in found if one is not None]
        size = sum(hi - lo for _, lo, hi in ranges)
        with (self._hand if size <= SHORT_READ else self._readers).use() as session:
            read = reads.read(session, ranges)
        for (_, _, hi), segments in zip(ranges, read, strict=True):
            if segments and hi <= segments[-1].last:
                self._cache.remember(segments[-1])
        return read

    # housekeeping

    def notes(self) -> list[str]:
        with our_errors(self.url.target):
            return vacuum.notes(self._checkpointer, self.url.target)

    def now(self) -> int:
        return self.clock.now()

    def flush_ledger(self) -> None:
        """Write the counts gathered in memory."""
        if self._tally:
            self._ledger_at = 0
            self.transact([])

    def changed(self) -> bool:
        """Whether another process committed since the last call. Our own commits do not count."""
        if not self._closed and self._trusted and self._write_lock.acquire(blocking=False):
            # While a turn holds the lock it looks itself.
            try:
                version = self._connection.pragma("data_version")
                self._others_wrote |= version != self._watched
                self._watched = version
            finally:
                self._write_lock.release()
        changed, self._others_wrote = self._others_wrote, False
        return changed

    def maintain(self) -> None:
        """Checkpoint: passive beside the writer, and in the writer's place when the log has grown large."""
        try:
            size = os.path.getsize(self.url.target + "-wal")
        except OSError:
            return
        if size < CHECKPOINT_BYTES:
            return
        # Busy: another process is at it, or will be again; the log waits for the next time.
        with our_errors(self.url.target), suppress(apsw.BusyError):
            if size < RESTART_BYTES:
                self._checkpointer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                return
            with self._write_lock:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def close(self) -> None:
        if self._closed:
            return
        with suppress(StoreError):
            self.flush_ledger()
        instances.closed(self.instance)
        with self._write_lock:
            self._closed = True
            self._readers.close()
            self._long_readers.close()
            self._hand.close()
            self._checkpointer.close()
            self._connection.close()
