"""Turns of a consumer group: which member gets the next item.

Members take turns: the member that got its latest turn longest ago comes first. A member asks for items with a fetch.
If a member with an earlier turn waits for an item, the fetch keeps the item for that member for a short time and
leaves it in the pool. The item has no lease and no deadline until the member fetches it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ackwise.core.validation import MICROS
from ackwise.graph.engine import events
from ackwise.graph.engine.entities import Graph
from ackwise.graph.engine.events import WatchRow, watch_from

KEPT_FOR = 1 * MICROS
"""How long an item is kept for the member whose turn it is. A member that misses its turn waits no longer."""
WAITS_FOR = 10 * MICROS
"""How long a member counts as waiting after a fetch without an item. Waiting clients fetch every five seconds."""
NOTED_EVERY = 1 * MICROS
"""A waiting member notes its fetches this often at most: each note is a write."""
MOST_WAITING = 50
"""Waiting members that one fetch considers."""


class KeptItem(NamedTuple):
    """An item, and the member that it is kept for, if any."""

    entity: int
    member: int | None
    until: int


class PoolTurns:
    """Turns of one pool during one fetch. `own` are the members that fetch."""

    def __init__(self, graph: Graph, pool: int, own: list[WatchRow]) -> None:
        self._graph, self._pool = graph, pool
        self._own = frozenset(row.no for row in own)
        self._latest: int | None = None
        self._others: list[WatchRow] | None = None
        self._kept: dict[int, int] = {}
        """Items that this fetch keeps, by member."""
        self._active: dict[int, bool] = {}

    def next_turn(self) -> int:
        """The number of the next turn."""
        if self._latest is None:
            row = self._graph.session.row("mew_watch_last_served", {"pool": self._pool})
            self._latest = int(row[0] or 0) if row else 0
        self._latest += 1
        return self._latest

    def keeper(self, row: WatchRow, accepts: Callable[[WatchRow], bool]) -> WatchRow | None:
        """The waiting member that comes before `row` and accepts the item. None: it is the turn of `row`."""
        for member in self._waiting(row):
            if (member.served, member.no) < (row.served, row.no) and self.has_room(member) and accepts(member):
                return member
        return None

    def _waiting(self, row: WatchRow) -> list[WatchRow]:
        """Waiting members in the order of their turns. A member that got its turn now goes to the end."""
        if row.spec.group is None:
            return []
        if self._others is None:
            where = {"pool": self._pool, "since": self._graph.turn.now - WAITS_FOR, "limit": MOST_WAITING}
            rows = map(watch_from, self._graph.session.rows("mew_watches_waiting", where))
            self._others = [member for member in rows if member.no not in self._own]
        return self._others

    def has_waiting(self, row: WatchRow) -> bool:
        """Whether other members wait."""
        return bool(self._waiting(row))

    def has_room(self, member: WatchRow) -> bool:
        return member.held + self._kept.get(member.no, 0) < member.spec.buffer

    def keep(self, member: WatchRow, entity: int) -> int:
        """Keep an item for a member: that is its turn. Returns until when."""
        until = self._graph.turn.now + KEPT_FOR
        member.served = self.next_turn()
        where = {"pool": self._pool, "entity": entity, "watch": member.no, "until": until}
        self._graph.session.run("mew_item_keep", where)
        values = {"no": member.no, "served": member.served, "waits_from": member.waits_from}
        self._graph.session.run("mew_watch_turn", values)
        self._kept[member.no] = self._kept.get(member.no, 0) + 1
        if member.no not in self._own and self._others is not None:
            self._others.sort(key=_order)
            events.wake(self._graph, member)
        return until

    def is_kept(self, row: WatchRow, item: KeptItem) -> bool:
        """Whether an item is kept for another member. An item whose time is over is kept no longer."""
        if item.member is None or item.member == row.no:
            return False
        if item.until > self._graph.turn.now and self._is_active(item.member):
            return True
        self._graph.session.run(
            "mew_item_keep", {"pool": self._pool, "entity": item.entity, "watch": None, "until": None}
        )
        # The member did not come for the item: it waits no longer.
        self._graph.session.run("mew_watch_absent", {"no": item.member})
        if self._others is not None:
            self._others = [member for member in self._others if member.no != item.member]
        return False

    def _is_active(self, watch: int) -> bool:
        if watch not in self._active:
            row = events.watch_of(self._graph, watch)
            self._active[watch] = row is not None and row.status == "active"
        return self._active[watch]


def _order(row: WatchRow) -> tuple[int, int]:
    return row.served, row.no


def note_waiting(graph: Graph, row: WatchRow) -> None:
    """Note that a member of a group asked for an item and got none."""
    now = graph.turn.now
    if row.spec.group is None or (row.waits_from is not None and row.waits_from > now - NOTED_EVERY):
        return
    row.waits_from = now
    graph.session.run("mew_watch_turn", {"no": row.no, "served": row.served, "waits_from": now})
