"""SQLite store: one writer, readers, checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar

import apsw

from ackwise.clock import Clock
from ackwise.core.errors import StoreError
from ackwise.core.events import EventStream
from ackwise.core.lane_range import LaneRange
from ackwise.engine.extensions import Extension, Extensions
from ackwise.engine.ports import Known, Session
from ackwise.engine.reads import queues
from ackwise.engine.segment import Segment, SegmentCache
from ackwise.store import broker_instances
from ackwise.store.clock_anchor import AnchoredClock
from ackwise.store.database_store import DatabaseStore
from ackwise.store.port import SHORT_READ, StoreTraits
from ackwise.store.sqlite import vacuum, views
from ackwise.store.sqlite.connection import SCHEMA_VERSION, open_reader, translated_errors
from ackwise.store.sqlite.dedupe import GENERATION, StoredKeys
from ackwise.store.sqlite.readers import ReaderPool
from ackwise.store.sqlite.session import add_statements
from ackwise.store.sqlite.writer import Writer
from ackwise.store.turn_runner import TurnRunner
from ackwise.wire.store_url import StoreURL, parse

T = TypeVar("T")
CHECKPOINT_BYTES = 8 << 20
RESTART_BYTES = 64 << 20
PAUSE_BYTES = 256 << 20
PAUSE_SECONDS = 10.0
"""A long statement ends within its limit, 5 seconds by default."""
CACHE_BYTES = 8 << 20


class SQLiteStore(DatabaseStore):
    """Queues in one file. Several processes may open it. Each turn is one transaction."""

    on_change: Callable[[], None] | None = None

    def __init__(
        self,
        url: str | StoreURL,
        *,
        clock: Clock | None = None,
        instance: str | None = None,
        events: EventStream | None = None,
        vfs: str | None = None,
        readers: int = 2,
        dedupe_generation: int = GENERATION,
        seed: int | None = None,
    ) -> None:
        self.url = parse(url) if isinstance(url, str) else url
        self.clock: Clock = clock or AnchoredClock()
        self.traits = StoreTraits(
            self.url.target, instance or broker_instances.new_name(), shards=1, schema=SCHEMA_VERSION, local=True
        )
        self.events = events or EventStream()
        self.extensions = Extensions(self._install)
        self._cache = SegmentCache(CACHE_BYTES, self._load_segments)
        self.read = self._cache.read
        self._closed = False
        self._writer = Writer(
            self.url,
            clock=self.clock,
            instance=self.instance,
            cache=self._cache,
            events=self.events,
            vfs=vfs,
            dedupe_generation=dedupe_generation,
            random_seed=seed,
            extensions=self.extensions,
        )
        self.busy = self._writer.lock.locked
        self.prepare = TurnRunner([self._writer], self.events).prepare
        self._seed = self._writer.seed
        self._readers = ReaderPool(partial(open_reader, self.url, vfs), readers, self.url.target)
        self._long_readers = ReaderPool(partial(open_reader, self.url, vfs), readers, self.url.target)
        # A separate connection: an event loop reads claimed messages and must not wait for a long query.
        self._claim_reader = ReaderPool(partial(open_reader, self.url, vfs), 1, self.url.target)
        self._checkpointer = open_reader(self.url, vfs)

    def _install(self, extension: Extension) -> None:
        add_statements(extension)
        self._note_migrated(extension, self._writer.add_tables(extension))

    # reading

    def _run_read(self, job: Callable[[Session], T], *, long: bool = False) -> T:
        with (self._long_readers if long else self._readers).use() as session:
            return job(session)

    def _known_ids(self, session: Session) -> Known:
        return StoredKeys(session)

    def _load_segments(self, ranges: Sequence[LaneRange], room: int | None = None) -> list[list[Segment]]:
        size = sum(hi - lo for _, lo, hi in ranges)
        with (self._claim_reader if size <= SHORT_READ else self._readers).use() as session:
            return queues.read(session, ranges, room)

    # maintenance

    def notes(self) -> list[str]:
        with translated_errors(self.url.target):
            target = self.url.target
            return vacuum.notes(self._checkpointer, target) + views.notes(self._checkpointer, target)

    def flush_ledger(self) -> None:
        if self._writer.counts:
            self._writer.counts.write_next()
            self.transact([])

    def changed(self) -> bool:
        """Whether another process committed since the last call. Commits of this store do not count."""
        return self._writer.others_wrote()

    def maintain(self) -> None:
        """Checkpoint the write-ahead log. A large log is truncated, which holds the writer for a moment.

        A log cannot shrink while a read uses it. So above `PAUSE_BYTES` new reads wait until the running ones have
        ended and the log is truncated. Otherwise overlapping reads would let the log grow without bound.
        """
        try:
            size = os.path.getsize(self.url.target + "-wal")
        except OSError:
            return
        if size < CHECKPOINT_BYTES:
            return
        # Busy: another process uses the log. The next call tries again.
        with translated_errors(self.url.target), suppress(apsw.BusyError):
            # This copies most pages beside the writer, so that the truncation is short.
            self._checkpointer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if size >= PAUSE_BYTES:
                self._truncate_without_readers()
            elif size >= RESTART_BYTES:
                self._writer.truncate_log()

    def _truncate_without_readers(self) -> None:
        # The claim reader comes last: an event loop waits for it.
        with ExitStack() as paused:
            for readers in (self._long_readers, self._readers, self._claim_reader):
                if not paused.enter_context(readers.paused(PAUSE_SECONDS)):
                    return
            self._writer.truncate_log()

    def close(self) -> None:
        if self._closed:
            return
        with suppress(StoreError):
            self.flush_ledger()
        broker_instances.mark_closed(self.instance)
        with self._writer.lock:
            self._closed = True
            self._readers.close()
            self._long_readers.close()
            self._claim_reader.close()
            self._checkpointer.close()
            self._writer.close()
