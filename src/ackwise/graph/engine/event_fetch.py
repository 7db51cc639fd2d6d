"""Fetches events of a session: from the buffers of watches, and for consumers the next items of their pools."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import msgspec

from ackwise.core import ids
from ackwise.core.ids import GroupId, LaneId
from ackwise.core.lane_range import LaneRange
from ackwise.core.spans import Lease
from ackwise.graph.commands import FETCH_BYTES, FetchedEvents, FetchGraph, WatchEvent
from ackwise.graph.engine import consumer_pools, events, member_turns, pattern_sql, watches
from ackwise.graph.engine.consumer_pools import ItemDelivery
from ackwise.graph.engine.entities import Graph
from ackwise.graph.engine.events import WatchRow
from ackwise.graph.engine.member_turns import KeptItem, PoolTurns
from ackwise.graph.engine.pattern_sql import MatchRow
from ackwise.graph.engine.watch_index import StandingQuery
from ackwise.graph.expressions import surely_holds
from ackwise.graph.projection import match_of

PREFER_OTHERS = 1_000_000
"""Microseconds for which a failed item is left to other members of its group."""
PAGE = 20
LOOK_SECONDS = 0.1
"""Seconds that one fetch searches for items."""
ASSIGNED = 100
"""Items that a fetch keeps for their members after it has as many as it asked for."""
FIRST_PAGE = 16
"""Events of the first page. Later pages are as long as the average size of these allows."""


class FetchItem(NamedTuple):
    """A free item of a pool: its number, its match, and its delivery state, if it was delivered before."""

    entity: int
    match: MatchRow
    before: ItemDelivery | None
    was_kept: bool = False
    """The item was kept for this member: it already had its turn."""


class EventFetch:
    """One fetch of a session: collects events until the caller's number, the time or the bytes are used up."""

    def __init__(self, graph: Graph, command: FetchGraph) -> None:
        self.graph, self.room = graph, command.most
        self.events: list[WatchEvent] = []
        self.until: int | None = None
        self.more = self.cut = False
        self.bytes = self.needs = 0
        self._most_bytes = command.most_bytes
        self._end = time.monotonic() + LOOK_SECONDS
        self._turns: dict[int, PoolTurns] = {}
        self._places: dict[int, tuple[str, int]] = {}
        """Rank and entity of the last item that a member has looked at."""
        self._served: set[int] = set()
        """Members that got an item."""

    def run(self, rows: list[WatchRow]) -> FetchedEvents:
        for row in rows:
            if row.status != "paused" and not self.needs:
                self._send_buffer(row)
        members = [row for row in rows if row.status == "active" and row.pool is not None]
        for row in members:
            assert row.pool is not None
            self._turns.setdefault(row.pool, PoolTurns(self.graph, row.pool, members))
        while members and self.room > 0 and not self.cut:
            # One item each in turn, so that members of one group share.
            members.sort(key=_turn)
            members = [row for row in members if self._deliver_next(row)]
            self._check_clock()
        self.more = bool(members)
        if members and self.room <= 0 and not self.cut:
            self._assign_rest(members)
        return FetchedEvents(self.events, self.until, self.more, self.cut, self.bytes, self.needs)

    @property
    def _is_full(self) -> bool:
        return self.bytes >= FETCH_BYTES

    def _check_clock(self) -> None:
        self.cut |= time.monotonic() > self._end or self._is_full

    def _send_buffer(self, row: WatchRow) -> None:
        """Send the buffered events of a watch, page by page."""
        page = FIRST_PAGE if self._most_bytes is None else self._fitting(row)
        while page and not self._is_full and self._read_buffer(row, page):
            page = 0 if self.needs else self._fitting(row)
        self.cut |= self._is_full or self.needs > 0

    def _fitting(self, row: WatchRow) -> int:
        """How many of the next events fit, at least one unless the next one is too large for `most_bytes`.

        Events so far say nothing about the size of the next ones.
        """
        if row.sent >= row.head:
            return 1
        fitting, size = 0, self.bytes
        for (length,) in self.graph.session.rows("mew_events_sizes", self._waiting(row, self.room)):
            if size >= FETCH_BYTES or not self._has_room(size, length):
                break
            size += length
            fitting += 1
        return fitting if self.needs else max(1, fitting)

    def _has_room(self, size: int, length: int) -> bool:
        """Whether an event of `length` bytes fits after `size` bytes of others. Notes the length if not."""
        if self._most_bytes is None or size + length <= self._most_bytes:
            return True
        self.needs = length
        return False

    def _waiting(self, row: WatchRow, limit: int) -> dict[str, int]:
        """Query parameters that select the next events of a watch's buffer."""
        upto = self.graph.state.ticked if row.spec.deliver_on == "tick" else consumer_pools.BEYOND
        floor = row.sent if row.spec.on_full == "block" else max(row.sent, row.head - row.spec.buffer)
        return {"watch": row.no, "sent": floor, "tick": upto, "limit": limit}

    def _read_buffer(self, row: WatchRow, page: int) -> bool:
        """Send up to `page` events. Returns False when there are no more, or no room."""
        if row.sent >= row.head or self.room <= 0:
            return False
        where = self._waiting(row, min(page, self.room))
        rows = self.graph.session.rows("mew_events_next", where)
        for position, kind, tick, delivery_id, body in rows:
            fields: dict[str, Any] = msgspec.json.decode(body)
            self.events.append(WatchEvent(row.id, kind, tick, delivery_id=delivery_id, **fields))
            row.sent = position
            row.delivered += kind != "notice"
            self.bytes += len(body)
        self.room -= len(rows)
        if len(rows) < where["limit"] and where["tick"] >= self.graph.tick:
            row.sent = row.head
        if rows:
            events.save(self.graph, row)
        return len(rows) == where["limit"]

    def _deliver_next(self, row: WatchRow) -> bool:
        """Deliver the next item to a consumer. Returns False if the pool has none, or the consumer's buffer is full."""
        if self.room <= 0 or self.needs:
            return self.needs > 0
        assert row.pool is not None
        pool = consumer_pools.pool_of(self.graph, row.pool)
        if pool is None:
            return False
        full = row.held >= row.spec.buffer
        if full and row.spec.on_full != "error":
            return False
        item = self._next_item(row, pool)
        if item is None:
            return False
        if full:
            watches.overflow(self.graph, row)
            self._send_buffer(events.watch_of(self.graph, row.no) or row)
            return False
        names = item.match.names
        match = match_of(row.spec.returns, pool.plan.variables, names, pattern_sql.scope_of(self.graph, names))
        if self._most_bytes is not None and not self._has_room(self.bytes, events.size_of({"match": match})):
            self.cut = True
            return True
        self._lease(row, item, match)
        return True

    def _next_item(self, row: WatchRow, pool: StandingQuery) -> FetchItem | None:
        """The first free item of the pool that the consumer may get now."""
        while True:
            rank, entity = self._places.get(row.no, ("", -1))
            where = {"pool": pool.no, "rank": rank, "entity": entity, "limit": PAGE}
            page = self.graph.session.rows("mew_items_next", where)
            for number, key, kept_for, kept_until, *delivery in page:
                self._places[row.no] = key, number
                kept = KeptItem(number, kept_for, kept_until or 0)
                item = self._item(row, pool, kept, _delivery(number, *delivery))
                if item is not None:
                    return item
            if len(page) < PAGE and not self._scan(row, pool):
                return None
            self._check_clock()
            if self.cut:
                return None  # the next fetch continues behind the rows that this fetch checked

    def _scan(self, row: WatchRow, pool: StandingQuery) -> bool:
        """Add old entities to the pool. Returns False when none are left, and notes that the member waits."""
        began = consumer_pools.scan(self.graph, pool)
        if began is None:
            if row.no not in self._served:
                member_turns.note_waiting(self.graph, row)
            return False
        if pool.spec.ordering or began < self._places.get(row.no, ("", -1))[1]:
            self._places.pop(row.no, None)  # a scan that began anew may add items in front
        return True

    def _item(
        self, row: WatchRow, pool: StandingQuery, kept: KeptItem, before: ItemDelivery | None
    ) -> FetchItem | None:
        """The item, if the consumer may get it. Keeps the item for another member if it is that member's turn."""
        turns = self._turns[pool.no]
        if turns.is_kept(row, kept):
            self._wait_until(kept.until)
            return None
        match = self._fitting_match(row, pool, kept.entity, before)
        if match is None:
            return None
        now = self.graph.turn.now
        was_kept = kept.member == row.no and kept.until > now
        # The others had their time for an item that came back a while ago.
        is_old = before is not None and before.due_at + member_turns.KEPT_FOR <= now
        member = None if was_kept or is_old else turns.keeper(row, lambda other: self._may_get(other, match, before))
        if member is not None:
            self._wait_until(turns.keep(member, kept.entity))
            return None
        return FetchItem(kept.entity, match, before, was_kept)

    def _fitting_match(
        self, row: WatchRow, pool: StandingQuery, entity: int, before: ItemDelivery | None
    ) -> MatchRow | None:
        """The item's match.

        None if other members get the item first, if it waits for a tick, or if the consumer's filter refuses it.
        """
        if self._is_left_to_others(row, before):
            return None
        match = consumer_pools.first_match(self.graph, pool, entity)
        if match is None:
            self.graph.session.run("mew_item_delete", {"pool": pool.no, "entity": entity})
            return None
        return match if self._passes(row, match) else None

    def _passes(self, row: WatchRow, match: MatchRow) -> bool:
        """Whether the consumer's tick and filter accept the match."""
        if row.spec.deliver_on == "tick":
            newest = max(entity.tick for entity in match.names.values())
            if newest > self.graph.state.ticked:
                return False
        return surely_holds(row.spec.filter, pattern_sql.scope_of(self.graph, match.names))

    def _may_get(self, member: WatchRow, match: MatchRow, before: ItemDelivery | None) -> bool:
        """Whether another member accepts the item now."""
        failed_by = before.watch if before is not None and before.fails else None
        return failed_by != member.no and self._passes(member, match)

    def _is_left_to_others(self, row: WatchRow, before: ItemDelivery | None) -> bool:
        """Whether other members get the item first, because this one failed it just now."""
        if before is None or before.watch != row.no or not before.fails:
            return False
        until = before.due_at + PREFER_OTHERS
        if until <= self.graph.turn.now:
            return False
        if self.graph.session.row("mew_watch_others", {"pool": row.pool, "no": row.no}) is None:
            return False
        self._wait_until(until)
        return True

    def _wait_until(self, until: int) -> None:
        self.until = until if self.until is None else min(self.until, until)

    def _lease(self, row: WatchRow, item: FetchItem, match: dict[str, Any]) -> None:
        turn, entity, before = self.graph.turn, item.entity, item.before
        lease = Lease(
            no=turn.next_lease_no(),
            tag=turn.dice.getrandbits(32),
            queue=0,
            grp=GroupId(0),
            owner=row.id,
            instance=turn.instance,
            exclusivity="none",
            bulk=0,
            deadline=turn.now + row.spec.ack_timeout * 1000,
            made_at=turn.now,
            granted=[LaneRange(LaneId(0), entity, entity + 1)],
        )
        turn.add_lease(lease)
        deliveries = (before.delivs if before is not None else 0) + 1
        delivery = ItemDelivery(entity, lease.no, before.fails if before else 0, deliveries, row.no, lease.deadline, 0)
        self.graph.session.run("mew_delivery_put", delivery._asdict())
        self.graph.session.run("mew_items_hold", {"entity": entity})
        delivery_id = ids.delivery_id(lease.no, lease.tag, 0, entity)
        tick = self.graph.state.tick
        body = {"match": match}
        self.bytes += events.append(self.graph, row, "consumed", body, delivery_id=delivery_id, lease=lease.no)
        row.sent, row.delivered, row.held = row.head, row.delivered + 1, row.held + 1
        self._note_turn(row, item)
        events.save(self.graph, row)
        limit = max(1, row.spec.max_redeliveries)
        self.events.append(
            WatchEvent(
                row.id,
                "consumed",
                tick,
                match,
                delivery_id=delivery_id,
                attempt=deliveries,
                failures=delivery.fails,
                limit=limit,
                ack_timeout=row.spec.ack_timeout * 1000,
            )
        )
        self.room -= 1

    def _assign_rest(self, members: list[WatchRow]) -> None:
        """If other members wait, keep each of the next items for the member whose turn it is.

        Without this step, a member that fetches many items at once would get the items of a member that fetches one
        item at a time.
        """
        for pool_no, turns in self._turns.items():
            own = [row for row in members if row.pool == pool_no]
            pool = consumer_pools.pool_of(self.graph, pool_no) if own and turns.has_waiting(own[0]) else None
            if pool is not None:
                self._assign_items(own, pool)

    def _assign_items(self, own: list[WatchRow], pool: StandingQuery) -> None:
        rank, entity = min(self._places.get(row.no, ("", -1)) for row in own)
        where = {"pool": pool.no, "rank": rank, "entity": entity, "limit": ASSIGNED}
        for number, _, kept_for, _, *delivery in self.graph.session.rows("mew_items_next", where):
            if kept_for is None:
                self._assign(own, pool, number, _delivery(number, *delivery))

    def _assign(self, own: list[WatchRow], pool: StandingQuery, entity: int, before: ItemDelivery | None) -> None:
        """Keep an item for the member whose turn it is: one that fetches now, or one that waits."""
        turns = self._turns[pool.no]
        match = consumer_pools.first_match(self.graph, pool, entity)
        if match is None:
            return
        takers = [row for row in sorted(own, key=_turn) if turns.has_room(row) and self._may_get(row, match, before)]
        if takers:
            member = turns.keeper(takers[0], lambda other: self._may_get(other, match, before))
            turns.keep(member or takers[0], entity)

    def _note_turn(self, row: WatchRow, item: FetchItem) -> None:
        """The member got an item: its next turn comes after those of the others."""
        self._served.add(row.no)
        row.waits_from = None
        if row.spec.group is not None and not item.was_kept:
            assert row.pool is not None
            row.served = self._turns[row.pool].next_turn()


def _turn(row: WatchRow) -> tuple[int, int]:
    return row.served, row.no


def _delivery(
    entity: int, fails: int | None, delivs: int | None, watch: int | None, due_at: int | None
) -> ItemDelivery | None:
    """The delivery state of a free item. None if it was not delivered before."""
    if fails is None or delivs is None or watch is None or due_at is None:
        return None
    return ItemDelivery(entity, None, fails, delivs, watch, due_at, 0)
