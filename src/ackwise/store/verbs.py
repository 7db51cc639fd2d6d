"""The verbs that only look, for any store that can run a function over a session."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from ackwise.core import queries as q
from ackwise.core.answers import QueueInfo
from ackwise.core.graph.commands import Asked, AskGraph, DescribeGraph, FindGraph, Found, IsSessionHere, TypeRow
from ackwise.store import audit, depths, locating, reads, standing
from ackwise.store.graph import prematch
from ackwise.store.graph import running as graph
from ackwise.store.meter import Meter
from ackwise.store.session import Known, Session
from ackwise.store.turn.context import Looking

T = TypeVar("T")


class ReadVerbs:
    """Each verb is one function of `reads`, run on one consistent view of the data."""

    _seed: bytes
    """What the hashes of transaction ids are made with."""
    instance: str
    """Who this store's broker is among others."""

    @abstractmethod
    def _look(self, job: Callable[[Session], T]) -> T: ...

    @abstractmethod
    def _look_long(self, job: Callable[[Session], T]) -> T:
        """Run the job on separate connections, so that other readers never wait for the job."""
        ...

    @abstractmethod
    def _known(self, session: Session) -> Known:
        """Where a reader looks transaction ids up."""
        ...

    @abstractmethod
    def now(self) -> int: ...

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

    def find_message(self, query: q.FindMessage) -> q.FoundMessage:
        return self._look(
            lambda session: locating.find_message(Looking(session, self._known(session), self._seed), query, self.now())
        )

    def list_dead(self, query: q.ListDead) -> q.DeadPage:
        return self._ask(reads.list_dead, query)

    def list_groups(self, query: q.ListGroups) -> list[q.GroupStats]:
        return self._ask(standing.list_groups, query)

    def list_group_names(self, query: q.ListGroupNames) -> list[str]:
        return self._ask(standing.list_group_names, query)

    def list_cursors(self, query: q.ListCursors) -> list[q.CursorRow]:
        return self._ask(reads.list_cursors, query)

    def list_places(self, query: q.ListPlaces) -> list[q.Place]:
        return self._ask(standing.list_places, query)

    def list_partitions(self, query: q.ListPartitions) -> list[q.PartitionRow]:
        return self._ask(standing.list_partitions, query)

    def list_lanes(self, query: q.ListLanes) -> list[q.LaneRow]:
        return self._ask(reads.list_lanes, query)

    def list_leases(self, query: q.ListLeases) -> list[q.LeaseRow]:
        return self._ask(reads.list_leases, query)

    def list_held(self, query: q.ListHeld) -> list[q.HeldRow]:
        return self._look(lambda session: reads.list_held(session, query, self.now()))

    def list_depths(self, query: q.ListDepths) -> list[q.Depth]:
        return self._look(lambda session: depths.list_depths(session, query, self.now()))

    def is_held(self, query: q.IsHeld) -> bool:
        return self._look(lambda session: depths.is_held(session, query, self.now()))

    def read_ledger(self, query: q.ReadLedger) -> list[q.LedgerRow]:
        self.flush_ledger()
        return self._ask(reads.read_ledger, query)

    def stats(self, query: q.QueueStats) -> q.Stats:
        return self._ask(standing.stats, query)

    def list_stats(self, query: q.ListStats) -> list[q.QueueSummary]:
        return self._ask(standing.list_stats, query)

    def ask_graph(self, query: AskGraph | FindGraph, meter: Meter, *, long: bool) -> Asked | tuple[Found, ...]:
        def job(session: Session) -> Asked | tuple[Found, ...]:
            meter.begin()
            if isinstance(query, FindGraph):
                return prematch.find(session, self.now(), query, meter)
            return graph.ask(session, self.now(), query, meter)

        return self._look_long(job) if long else self._look(job)

    def describe_graph(self, query: DescribeGraph) -> list[TypeRow]:
        return self._look(graph.describe)

    def is_session_here(self, query: IsSessionHere) -> bool:
        return self._look(lambda session: graph.is_here(session, self.instance, query))

    def audit(self) -> list[str]:
        return self._look(audit.audit)
