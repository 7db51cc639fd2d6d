"""Queries about the graph as a whole: counts, types, watches, consumer pools, dead letters.

Every count stops at `most`, so that a large graph answers as fast as a small one.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ackwise.core import validation
from ackwise.core.queries import Query
from ackwise.core.rows import Page
from ackwise.core.structs import Answer_co

LARGEST_COUNT = 100_000


class OverviewQuery(Query[Answer_co]):
    """A query whose counts stop at `most`."""

    LARGEST_LIMIT: ClassVar[int] = 100
    most: int = 10_000

    def check(self) -> None:
        super().check()
        validation.count(self.most, "most", most=LARGEST_COUNT)


class Bounded(msgspec.Struct, frozen=True):
    """A count that stopped at its bound if `more` is set."""

    count: int
    more: bool = False


class GraphTotals(msgspec.Struct, frozen=True):
    """Counts of the whole graph."""

    tick: int
    types: int
    watches: Bounded
    """Active and paused watches."""
    pending: Bounded
    """Deliveries that a consumer has not settled."""
    dead_letters: Bounded
    held: Bounded
    """Items that `_dead_letter_item` edges hold at their `dead_letter` node."""


class GraphTypeRow(msgspec.Struct, frozen=True):
    """A type of the users. An alias (`type`) has no entities."""

    name: str
    kind: str
    """`node`, `edge` or `type`."""
    declared: str
    entities: Bounded
    slots: tuple[str, ...] = ()
    """Names of an edge's ends."""


class WatchInfo(msgspec.Struct, frozen=True):
    """A watch that is active or paused."""

    no: int
    id: str
    name: str
    session: str
    pattern: str
    mode: str
    group: str | None
    status: str
    waiting: int
    """Events that its session has not fetched."""
    pending: int
    """Deliveries that its session has not settled."""
    delivered: int
    last_event_at: int | None
    delivery: str
    ack_timeout: str
    max_redeliveries: int
    dead_letter: str | None


class PoolInfo(msgspec.Struct, frozen=True):
    """Pool of a consumer group, or of a consumer without a group: the items that its members share."""

    id: int
    group: str | None
    pattern: str
    members: int
    waiting: int
    """Members that wait for an item."""
    pending: int
    ready: Bounded
    """Items that can be delivered now."""


class GraphDeadLetter(msgspec.Struct, frozen=True):
    """Dead letter of the graph. A letter above `LETTER_BYTES` comes without its values."""

    no: int
    id: str
    watch: str | None
    """None if the watch is gone."""
    reason: str | None = None
    deliveries: int | None = None
    dead_at: int | None = None
    match: str | None = None


LETTER_BYTES = 64 << 10


class GraphStats(OverviewQuery[GraphTotals], tag="graph_stats"):
    """Counts of the whole graph."""


class ListGraphTypes(OverviewQuery[Page[GraphTypeRow]], tag="list_graph_types"):
    """The users' types by name, with bounded numbers of entities. Subtypes count for themselves."""

    after: str = ""
    limit: int = 25


class ListWatches(OverviewQuery[Page[WatchInfo]], tag="list_watches"):
    """Watches that are active or paused, newest first."""

    after: int | None = None
    limit: int = 50


class ListPools(OverviewQuery[Page[PoolInfo]], tag="list_pools"):
    """Pools of consumers, oldest first."""

    after: int = 0
    limit: int = 50


class ListGraphDead(OverviewQuery[Page[GraphDeadLetter]], tag="list_graph_dead"):
    """Dead letters of the graph, newest first."""

    after: int | None = None
    limit: int = 50
