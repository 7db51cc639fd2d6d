"""The verbs that only look, for any store that can run a function over a session."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from ackwise.core import queries as q
from ackwise.core.answers import QueueInfo
from ackwise.store import reads
from ackwise.store.session import Session

T = TypeVar("T")


class ReadVerbs:
    """Each verb is one function of `reads`, run on one consistent view of the data."""

    @abstractmethod
    def _look(self, job: Callable[[Session], T]) -> T: ...

    @abstractmethod
    def flush_ledger(self) -> None: ...

    def _ask(self, verb: Callable[[Session, Any], T], query: object) -> T:
        return self._look(lambda session: verb(session, query))

    def list_queues(self, query: q.ListQueues) -> list[QueueInfo]:
        return self._ask(reads.list_queues, query)

    def get_queue(self, query: q.GetQueue) -> QueueInfo:
        return self._ask(reads.get_queue, query)

    def browse(self, query: q.Browse) -> list[q.BrowsedMessage]:
        return self._ask(reads.browse, query)

    def list_dead(self, query: q.ListDead) -> q.DeadPage:
        return self._ask(reads.list_dead, query)

    def list_groups(self, query: q.ListGroups) -> list[q.GroupStats]:
        return self._ask(reads.list_groups, query)

    def list_cursors(self, query: q.ListCursors) -> list[q.CursorRow]:
        return self._ask(reads.list_cursors, query)

    def list_leases(self, query: q.ListLeases) -> list[q.LeaseRow]:
        return self._ask(reads.list_leases, query)

    def read_ledger(self, query: q.ReadLedger) -> list[q.LedgerRow]:
        self.flush_ledger()
        return self._ask(reads.read_ledger, query)

    def stats(self, query: q.QueueStats) -> q.Stats:
        return self._ask(reads.stats, query)

    def audit(self) -> list[str]:
        return self._look(reads.audit)
