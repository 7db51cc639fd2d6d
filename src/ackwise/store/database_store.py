"""Base of the stores: what both databases do in the same way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ackwise.core.command_checks import CheckedCommands
from ackwise.core.commands import Command
from ackwise.core.events import StoreMigrated
from ackwise.core.queries import Query
from ackwise.engine.extensions import Extension, meta_key
from ackwise.engine.ports import Known, Session
from ackwise.engine.reads import invariants, registry
from ackwise.engine.statement_meter import Meter
from ackwise.store.port import Store

R = TypeVar("R")


class DatabaseStore(Store, ABC):
    """A store on one database. Besides the port it has calls for programs that use a store without a broker."""

    @property
    def name(self) -> str:
        return self.traits.name

    @property
    def instance(self) -> str:
        return self.traits.instance

    _seed: bytes
    """Key of the hashes of transaction ids."""

    @abstractmethod
    def _run_read(self, job: Callable[[Session], R], *, long: bool = False) -> R:
        """Run a job in one transaction of a reader. `long` jobs have separate connections: no other reader waits."""

    @abstractmethod
    def _install(self, extension: Extension) -> None:
        """Create or migrate the tables of an extension."""

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
            now, shift = self.clock.now_and_shift()
            snapshot = registry.Snapshot(session, now, shift, self.instance, known, self._seed, meter)
            return function.answer(snapshot, query)

        return self._run_read(answer, long=long)

    def transact(self, commands: Sequence[Command], shard: int = 0) -> list[Any]:
        """Validate commands, run them in a turn and commit it.

        A refusal is a result. If the store fails, it raises and changes nothing. The results have no type: brokers do
        not call this, and a tool knows which commands it sends.
        """
        checked = CheckedCommands(commands, self.events)
        prepared = self.prepare(checked.valid, shard)
        prepared.commit()
        return checked.answers(prepared.results)

    def has_tables(self, extension: str) -> bool:
        """Whether the database has the tables of the extension with this name."""
        key = {"key": meta_key(extension)}
        return self._run_read(lambda session: session.row("meta_get", key)) is not None

    def audit(self) -> list[str]:
        """Violated invariants of the stored state. Empty if all invariants hold."""
        return self._run_read(lambda session: invariants.audit(session) + self.extensions.audit(session))

    def notes(self) -> list[str]:
        """Hints for the operator about maintenance of the store. A hint is not an error."""
        return []
