"""PostgreSQL store: sharded writers, readers, notifications."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from ackwise.clock import Clock
from ackwise.core.errors import StoreError
from ackwise.core.events import EventStream, StoreMigrated
from ackwise.core.lane_range import LaneRange
from ackwise.engine.extensions import Extension, Extensions
from ackwise.engine.ports import Known, Session
from ackwise.engine.reads import queues
from ackwise.engine.segment import Segment
from ackwise.store import broker_instances
from ackwise.store.database_store import DatabaseStore
from ackwise.store.port import StoreTraits
from ackwise.store.postgres import views
from ackwise.store.postgres.clock import DatabaseClock
from ackwise.store.postgres.connection import Database
from ackwise.store.postgres.dedupe import TableDedupe
from ackwise.store.postgres.notify import Notifier
from ackwise.store.postgres.readers import ReaderPool
from ackwise.store.postgres.schema import SCHEMA_VERSION, add_tables, migrate
from ackwise.store.postgres.session import PostgresSession, add_statements
from ackwise.store.postgres.writer import Writer
from ackwise.store.turn_runner import TurnRunner
from ackwise.wire.store_url import StoreURL, parse

T = TypeVar("T")
READERS = 4
LONG_READERS = 2


class PostgresStore(DatabaseStore):
    """Queues in one database that several brokers share."""

    def __init__(
        self,
        url: str | StoreURL,
        *,
        clock: Clock | None = None,
        instance: str | None = None,
        events: EventStream | None = None,
        seed: int | None = None,
        readers: int = READERS,
    ) -> None:
        self.url = parse(url) if isinstance(url, str) else url
        instance = instance or broker_instances.new_name()
        self.events = events or EventStream()
        self.on_change: Callable[[], None] | None = None
        self.extensions = Extensions(self._install)
        self._changed = False
        self._closed = False
        self._database = Database(self.url, self.events)
        self.traits = StoreTraits(self._database.where, instance, self.url.shards, SCHEMA_VERSION, local=False)
        self.clock: Clock = clock or DatabaseClock(self._database, instance)
        self._seed = self._open()
        lanes: dict[int, int] = {}
        rounds: dict[str, int] = {}
        self._writers = [
            Writer(
                self._database,
                name=f"{instance}/{number}",
                instance=instance,
                seed=self._seed,
                dice=random.Random(os.urandom(16) if seed is None else seed + number),  # noqa: S311
                read_clock=self._read_clock,
                lanes=lanes,
                rounds=rounds,
                announce=self._announce,
                extensions=self.extensions,
            )
            for number in range(self.url.shards)
        ]
        self.prepare = TurnRunner(self._writers, self.events).prepare
        self._readers = ReaderPool(self._database, readers)
        self._long_readers = ReaderPool(self._database, LONG_READERS)
        self._notifier = Notifier(self._database, instance, self._note_change)

    def _open(self) -> bytes:
        """Create or migrate the tables. Returns the key of the hashes of transaction ids."""
        with self._database.translated_errors(), self._database.connect() as connection:
            before = migrate(connection, self._database.where)
            if before != SCHEMA_VERSION and self.events.listening:
                self.events.emit(StoreMigrated(self._database.where, before, SCHEMA_VERSION))
            session = PostgresSession(connection)
            self._read_clock(session)
            return bytes.fromhex(session.rows("meta_get", {"key": "seed"})[0][0])

    def _install(self, extension: Extension) -> None:
        add_statements(extension)
        with self._database.translated_errors(), self._database.connect() as connection:
            before = add_tables(connection, self._database.where, extension)
        self._note_migrated(extension, before)

    # writing

    def busy(self) -> bool:
        return True  # every turn waits for the network

    # reading

    def _run_read(self, job: Callable[[Session], T], *, long: bool = False) -> T:
        return (self._long_readers if long else self._readers).run(job)

    def _known_ids(self, session: Session) -> Known:
        return TableDedupe(session)

    def read(self, ranges: Sequence[LaneRange], room: int | None = None) -> list[list[Segment]]:
        return self._readers.run(lambda session: queues.read(session, ranges, room), snapshot=False)

    # maintenance

    def notes(self) -> list[str]:
        with self._database.translated_errors(), self._database.connect() as connection:
            return views.notes(connection, self.name)

    def _read_clock(self, session: PostgresSession) -> tuple[int, int]:
        """The anchored instant, and how far it is ahead of the wall clock."""
        if isinstance(self.clock, DatabaseClock):
            return self.clock.read(session)
        return self.clock.now_and_shift()

    def flush_ledger(self) -> None:
        for shard, writer in enumerate(self._writers):
            if writer.counts:
                writer.counts.write_next()
                self.transact([], shard)

    def _announce(self, queues: set[str]) -> None:
        self._notifier.announce(queues)

    def _note_change(self) -> None:
        self._changed = True
        if self.on_change is not None:
            self.on_change()

    def listening(self, timeout: float) -> bool:
        """Wait until this store receives the notifications of other brokers. False after `timeout` seconds."""
        return self._notifier.wait_until_listening(timeout)

    def changed(self) -> bool:
        """Whether another broker announced claimable messages since the last call."""
        changed, self._changed = self._changed, False
        return changed

    def maintain(self) -> None:
        """Does nothing: autovacuum maintains the tables."""

    def close(self) -> None:
        if self._closed:
            return
        with suppress(StoreError):
            self.flush_ledger()
        self._closed = True
        for writer in self._writers:
            writer.closed = True
        broker_instances.mark_closed(self.instance)
        self._notifier.close()
        self._readers.close()
        self._long_readers.close()
        for writer in self._writers:
            with writer.lock:
                writer.drop()
