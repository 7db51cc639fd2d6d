"""The store port: one verb that writes, over typed commands, and the verbs that read. Each takes a batch or a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ackwise.core import queries as q
from ackwise.core.answers import QueueInfo
from ackwise.core.commands import Command
from ackwise.core.graph.commands import Asked, AskGraph, DescribeGraph, FindGraph, Found, IsSessionHere, TypeRow
from ackwise.store.meter import Meter
from ackwise.store.segment import Segment

Result = Any
"""The answer that belongs to the command (see `core.answers`), or the `AckwiseError` that refuses it."""


SHORT_READ = 1000
"""A local store reads a claim of at most so many messages at once, whoever else is reading."""


class Prepared(Protocol):
    """A turn that is planned and applied but not committed: `commit` is the fsync and may run in another thread."""

    @property
    def results(self) -> list[Result]: ...

    @property
    def woken(self) -> dict[str, int]:
        """Queues in which something may have become claimable, with about how many messages."""
        ...

    @property
    def light(self) -> bool:
        """Nothing was written: committing it is over at once."""
        ...

    def commit(self) -> None: ...

    def abandon(self) -> None:
        """Let go of everything; nothing happens once `commit` was called, in whichever thread."""
        ...


class Store(Protocol):
    """A place where queues live. Safe to use from several threads."""

    shards: int
    """How many turns may be under way at once."""

    local: bool
    """No network in between: a turn's statements are short enough to run on an event loop."""

    @property
    def busy(self) -> bool:
        """Another thread holds the writer, maybe through a slow fsync: an event loop must not wait for it."""
        ...

    def transact(self, commands: Sequence[Command], shard: int = 0) -> list[Result]:
        """Plan, apply and commit. Refusals are answers; a store that fails raises and nothing was changed."""
        ...

    def prepare(self, commands: Sequence[Command], shard: int = 0) -> Prepared: ...

    def read(self, ranges: Sequence[tuple[int, int, int]]) -> list[list[Segment]]:
        """The segments behind each (lane, lo, hi); what was pruned is missing."""
        ...

    def list_queues(self, query: q.ListQueues) -> list[QueueInfo]: ...

    def get_queue(self, query: q.GetQueue) -> QueueInfo: ...

    def browse(self, query: q.Browse) -> list[q.BrowsedMessage]: ...

    def find_message(self, query: q.FindMessage) -> q.FoundMessage: ...

    def list_dead(self, query: q.ListDead) -> q.DeadPage: ...

    def list_groups(self, query: q.ListGroups) -> list[q.GroupStats]: ...

    def list_group_names(self, query: q.ListGroupNames) -> list[str]: ...

    def list_cursors(self, query: q.ListCursors) -> list[q.CursorRow]: ...

    def list_places(self, query: q.ListPlaces) -> list[q.Place]: ...

    def list_partitions(self, query: q.ListPartitions) -> list[q.PartitionRow]: ...

    def list_lanes(self, query: q.ListLanes) -> list[q.LaneRow]: ...

    def list_leases(self, query: q.ListLeases) -> list[q.LeaseRow]: ...

    def list_held(self, query: q.ListHeld) -> list[q.HeldRow]: ...

    def list_depths(self, query: q.ListDepths) -> list[q.Depth]: ...

    def is_held(self, query: q.IsHeld) -> bool: ...

    def read_ledger(self, query: q.ReadLedger) -> list[q.LedgerRow]: ...

    def stats(self, query: q.QueueStats) -> q.Stats: ...

    def list_stats(self, query: q.ListStats) -> list[q.QueueSummary]: ...

    def ask_graph(self, query: AskGraph | FindGraph, meter: Meter, *, long: bool) -> Asked | tuple[Found, ...]:
        """MATCH or INSPECT over the graph as it is committed, or the matching part of a statement that changes it.

        A `long` query has separate connections. `Overrun` names the exceeded limit of the meter.
        """
        ...

    def describe_graph(self, query: DescribeGraph) -> list[TypeRow]: ...

    def is_session_here(self, query: IsSessionHere) -> bool: ...

    def audit(self) -> list[str]:
        """What is wrong with the stored state; an empty list when every promise holds."""
        ...

    def notes(self) -> list[str]:
        """Hints for the operator about maintenance of the store. A hint is not an error."""
        ...

    def now(self) -> int: ...

    def changed(self) -> bool:
        """Whether another process wrote since the last call; cheap enough to ask often."""
        ...

    def maintain(self) -> None:
        """Housekeeping of the database itself, between turns."""
        ...

    def close(self) -> None: ...
