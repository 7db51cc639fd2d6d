"""Answers queries for both databases: each query is a function of a registry and reads one snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from ackwise.clock import Clock
from ackwise.core.events import EventStream, StoreMigrated
from ackwise.core.lane_range import LaneRange
from ackwise.core.queries import Query
from ackwise.engine.extensions import Extension, Extensions, meta_key
from ackwise.engine.ports import Known, Session
from ackwise.engine.reads import invariants, queues, registry
from ackwise.engine.statement_meter import Meter

R = TypeVar("R")


class QueryRunner(ABC):
    """The part of a store that reads."""

    clock: Clock
    name: str
    events: EventStream
    instance: str
    extensions: Extensions
    _seed: bytes
    """Key of the hashes of transaction ids."""

    @abstractmethod
    def _run_read(self, job: Callable[[Session], R], *, long: bool = False) -> R:
        """Run a job in one transaction of a reader. `long` jobs have separate connections: no other reader waits."""

    @abstractmethod
    def _known_ids(self, session: Session) -> Known:
        """The transaction ids that a reader can look up."""

    def _note_migrated(self, extension: Extension, before: int) -> None:
        """Emit an event if the tables of an extension were created or migrated. `before` is their old version."""
        after = extension.schema_version
        if before != after and self.events.listening:
            self.events.emit(StoreMigrated(self.name, before, after, extension.name))

    @abstractmethod
    def flush_ledger(self) -> None:
        """Write the counts that are kept in memory."""

    def ask(self, query: Query[R], meter: Meter | None = None, *, long: bool = False) -> R:
        function = registry.function_of(query)
        if function.reads_ledger:
            self.flush_ledger()

        def answer(session: Session) -> R:
            if meter is not None:
                meter.begin()
            known = self._known_ids(session)
            snapshot = registry.Snapshot(session, self.clock.now(), self.instance, known, self._seed, meter)
            rows: R = function.answer(snapshot, query)
            return rows

        return self._run_read(answer, long=long)

    def fitting_end(self, lane_range: LaneRange, room: int) -> int:
        return self._run_read(lambda session: queues.fitting_end(session, *lane_range, room))

    def has_tables(self, extension: str) -> bool:
        key = {"key": meta_key(extension)}
        return self._run_read(lambda session: session.row("meta_get", key)) is not None

    def audit(self) -> list[str]:
        return self._run_read(lambda session: invariants.audit(session) + self.extensions.audit(session))
