"""One writing connection, one turn at a time."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import apsw

from ackwise.clock import Clock
from ackwise.core.answers import Result
from ackwise.core.commands import Command
from ackwise.core.errors import OutcomeUnknown, StoreError, StoreFull, StoreUnavailable
from ackwise.core.events import EventPort
from ackwise.engine import runner
from ackwise.engine.extensions import Extension, Extensions
from ackwise.engine.segment import Segment, SegmentCache
from ackwise.engine.turn import Turn
from ackwise.engine.writer_memory import NEVER, WriterMemory
from ackwise.store.clock_anchor import RECORD_EVERY, AnchoredClock
from ackwise.store.connection_health import ConnectionHealth
from ackwise.store.sqlite.connection import (
    add_tables,
    anchor_store,
    busy_handler,
    open_writer,
    translate_error,
    translated_errors,
)
from ackwise.store.sqlite.dedupe import GenerationalDedupe
from ackwise.store.sqlite.session import WriterSession
from ackwise.store.turn_runner import LedgerCounts, Patience
from ackwise.wire.store_url import StoreURL

NO_BOUND = nullcontext()


class Writer:
    """Runs turns on the one connection that writes. A turn holds `lock` from its first statement to its commit."""

    announce = None
    """Other processes look at the file's version."""

    def __init__(
        self,
        url: StoreURL,
        *,
        clock: Clock,
        instance: str,
        cache: SegmentCache,
        events: EventPort,
        vfs: str | None,
        dedupe_generation: int,
        random_seed: int | None,
        extensions: Extensions,
    ) -> None:
        self.lock = threading.Lock()
        self._url, self._clock, self._instance, self._cache = url, clock, instance, cache
        self._events, self._vfs, self._generation, self._extensions = events, vfs, dedupe_generation, extensions
        self._dice = random.Random(random_seed if random_seed is not None else os.urandom(16))  # noqa: S311
        self.counts = LedgerCounts(instance, clock.now())
        self._last_id = 0
        self._rounds: dict[str, int] = {}
        self._closed = False
        self._others_wrote = False
        self._health = ConnectionHealth(url.target, events)
        self._open()

    def _open(self) -> None:
        self.connection = open_writer(self._url, self._vfs, self._events)
        with translated_errors(self._url.target):
            self._session = WriterSession(self.connection)
            self._memory = WriterMemory(alone=True)
            row = self._session.row("meta_get", {"key": "seed"})
            assert row is not None
            self.seed = bytes.fromhex(row[0])
            self._anchor()
            self._dedupe = GenerationalDedupe(self._session, self._generation)
            self._data_version = self._watched = self.connection.pragma("data_version")
            self._trusted = True
        self._health.note_connected()

    def _anchor(self) -> None:
        """Let the clock follow the store's anchor. The first process of a boot writes the anchor."""
        self._recorded_at = NEVER
        if not isinstance(self._clock, AnchoredClock):
            return
        anchor = anchor_store(self.connection)
        if anchor is not None:
            self._clock.follow(anchor)
            self._recorded_at = anchor.seen

    def _record_time(self, turn: Turn) -> None:
        """Record the anchored instant: the clock continues from it after the next boot."""
        self._session.run("anchor_seen", {"seen": turn.now, "shift": turn.shift})
        self._recorded_at = turn.now

    # turns

    def run_turn(self, commands: Sequence[Command], patience: float | None) -> tuple[Turn, list[Result]]:
        """Begin a transaction and run the statements of a turn. SQLite has no row locks: `patience` has no effect."""
        turn = self._begin()
        before = self.connection.total_changes()
        results = runner.run(turn, commands)
        if self._dedupe.changed:
            self._dedupe.write(turn.wall)
        if turn.now >= self.counts.due_at:
            self.counts.write(turn)
        turn.wrote_nothing = self.connection.total_changes() == before
        if not turn.wrote_nothing and turn.now - self._recorded_at >= RECORD_EVERY:
            self._record_time(turn)
        return turn, results

    def _begin(self) -> Turn:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if not self._trusted:
            self.connection.close(True)
            self._open()
        self.connection.execute("BEGIN IMMEDIATE").fetchall()
        version = self.connection.pragma("data_version")
        if version != self._data_version:
            self._session.clear_cache()
            self._memory.forget()
            self._dedupe.others_wrote()
            self._others_wrote |= version != self._watched
            self._data_version = self._watched = version
        now, shift = self._clock.now_and_shift()
        turn = Turn(
            self._session,
            self._dedupe,
            now=now,
            shift=shift,
            dice=self._dice,
            seed=self.seed,
            instance=self._instance,
            rounds=self._rounds,
            memory=self._memory,
            extensions=self._extensions,
        )
        turn.last_id = self._last_id
        return turn

    def commit(self, turn: Turn) -> None:
        """Commit, then update the memory of the writer. A commit that fails half-way raises `OutcomeUnknown`.

        An interrupt may end this method anywhere. So the memory counts as untrusted until it matches the commit, and
        the next turn opens the connection again.
        """
        self._trusted = False
        try:
            self.connection.execute("COMMIT").fetchall()
        except apsw.FullError as problem:
            self._reopen(problem)
            raise StoreFull(f"{StoreFull.__doc__} ({self._url.target})") from problem
        except Exception as problem:
            self._reopen(problem)
            raise OutcomeUnknown(f"{OutcomeUnknown.__doc__} ({self._url.target}: {problem})") from problem
        if self._dedupe.changed:
            self._dedupe.committed()
        self._last_id = turn.last_id
        for row in turn.written:
            self._cache.put(Segment(row["pos"], row["first"], row["created_at"], row["body"]))
        self._trusted = True

    def roll_back(self) -> None:
        if self._closed or not self._trusted:
            return
        self._dedupe.rolled_back()
        self._session.clear_cache()
        self._memory.forget()
        if self.connection.in_transaction:
            try:
                self.connection.execute("ROLLBACK").fetchall()
            except apsw.Error as problem:
                self._reopen(problem)

    def _reopen(self, problem: Exception) -> None:
        """Open a new connection: the state of the old one is unknown. If that fails, the next turn tries again."""
        self._trusted = False
        self._health.note_lost(problem)
        try:
            self.connection.close(True)
            self._open()
        except (StoreError, apsw.Error):
            pass

    def is_hopeless(self, problem: Exception) -> bool:
        return isinstance(problem, apsw.BusyError | StoreUnavailable)

    def translate_error(self, problem: Exception) -> Exception:
        return translate_error(problem, self._url.target) if isinstance(problem, apsw.Error) else problem

    def patience_after(self, problem: Exception) -> Callable[[Command], Patience]:
        return lambda command: NO_BOUND

    # between turns

    def others_wrote(self) -> bool:
        """Whether another process committed since the last call. Commits of this writer do not count."""
        if not self._closed and self._trusted and self.lock.acquire(blocking=False):
            # A turn that holds the lock checks this itself.
            try:
                version = self.connection.pragma("data_version")
                self._others_wrote |= version != self._watched
                self._watched = version
            finally:
                self.lock.release()
        changed, self._others_wrote = self._others_wrote, False
        return changed

    def add_tables(self, extension: Extension) -> int:
        """Create or migrate the tables of an extension. Returns the version before."""
        with self.lock, translated_errors(self._url.target):
            return add_tables(self.connection, self._url.target, extension)

    def truncate_log(self) -> None:
        """Empty the write-ahead log. Raises `BusyError` at once if a reader uses the log: turns must not wait."""
        with self.lock:
            self.connection.set_busy_handler(None)
            try:
                self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            finally:
                self.connection.set_busy_handler(busy_handler(self._url.busy_timeout))

    def close(self) -> None:
        """Close the connection. The caller holds the lock."""
        self._closed = True
        self.connection.close()
