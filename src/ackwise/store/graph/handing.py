"""Events handed over: to watches what is in their buffers, to consumers the next item of their pool under a lease."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from ackwise.core import ids
from ackwise.core.graph.budget import FETCH_BYTES, weight
from ackwise.core.graph.commands import Fetched, FetchGraph, WatchEvent
from ackwise.core.graph.evaluating import surely_holds
from ackwise.core.graph.projecting import match_of
from ackwise.core.spans import Lease
from ackwise.store.graph import events, matching, pools, watching
from ackwise.store.graph.events import WatchRow
from ackwise.store.graph.matching import Row
from ackwise.store.graph.pools import Delivery
from ackwise.store.graph.standing import Standing
from ackwise.store.graph.writing import Graph

PREFER_OTHERS = 1_000_000
"""For so long an item that failed is left to other members of its group."""
PAGE = 20
LOOK_SECONDS = 0.1
"""Seconds that one fetch looks for matches to hand out."""
FIRST_PAGE = 16
"""Events that a fetch reads before it knows how large they are."""


class Handing:
    """One fetch of a session."""

    def __init__(self, graph: Graph, command: FetchGraph) -> None:
        self.graph, self.room = graph, command.most
        self.events: list[WatchEvent] = []
        self.until: int | None = None
        self.more = self.cut = False
        self.bytes = 0
        self._end = time.monotonic() + LOOK_SECONDS

    def run(self, rows: list[WatchRow]) -> Fetched:
        for row in rows:
            if row.status != "paused":
                self._buffered(row)
        members = [row for row in rows if row.status == "active" and row.pool is not None]
        while members and self.room > 0 and not self.cut:
            # One each in turn, so that members of one group share.
            members = [row for row in members if self._hand_out(row)]
            self._look_at_clock()
        self.more = bool(members)
        return Fetched(self.events, self.until, self.more, self.cut, self.bytes)

    @property
    def _is_full(self) -> bool:
        return self.bytes >= FETCH_BYTES

    def _look_at_clock(self) -> None:
        self.cut |= time.monotonic() > self._end or self._is_full

    def _buffered(self, row: WatchRow) -> None:
        page = FIRST_PAGE
        while not self._is_full and self._read_buffer(row, page):
            average = max(1, self.bytes // len(self.events))
            page = max(1, (FETCH_BYTES - self.bytes) // average)
        self.cut |= self._is_full

    def _read_buffer(self, row: WatchRow, page: int) -> bool:
        """Hand over up to `page` events from the buffer. False when there are no more, or no room."""
        if row.sent >= row.head or self.room <= 0:
            return False
        upto = self.graph.state.ticked if row.spec.deliver_on == "tick" else pools.BEYOND
        floor = row.sent if row.spec.on_full == "block" else max(row.sent, row.head - row.spec.buffer)
        where = {"watch": row.no, "sent": floor, "tick": upto, "limit": min(page, self.room)}
        found = self.graph.session.rows("mew_events_next", where)
        for position, kind, tick, delivery_id, body in found:
            fields: dict[str, Any] = msgspec.json.decode(body)
            self.events.append(WatchEvent(row.id, kind, tick, delivery_id=delivery_id, **fields))
            row.sent = position
            row.delivered += kind != "notice"
            self.bytes += len(body)
        self.room -= len(found)
        if len(found) < where["limit"] and upto >= self.graph.tick:
            row.sent = row.head
        if found:
            events.save(self.graph, row)
        return len(found) == where["limit"]

    def _hand_out(self, row: WatchRow) -> bool:
        """The next item for a consumer; False when there is none, or it has enough."""
        if self.room <= 0:
            return False
        assert row.pool is not None
        pool = pools.pool_of(self.graph, row.pool)
        if pool is None:
            return False
        full = row.held >= row.spec.buffer
        if full and row.spec.on_full != "error":
            return False
        found = self._next(row, pool)
        if found is None:
            return False
        if full:
            watching.overflow(self.graph, row)
            self._buffered(events.watch(self.graph, row.no) or row)
            return False
        self._lease(row, pool, *found)
        return True

    def _next(self, row: WatchRow, pool: Standing) -> tuple[int, Row, Delivery | None] | None:
        rank, entity = "", -1
        while True:
            where = {"pool": pool.no, "rank": rank, "entity": entity, "limit": PAGE}
            page = self.graph.session.rows("mew_items_next", where)
            for number, key, fails, delivs, last, due_at in page:
                rank, entity = key, number
                stands = None if delivs is None else Delivery(number, None, fails, delivs, last, due_at, 0)
                matched = self._fits(row, pool, number, stands)
                if matched is not None:
                    return number, matched, stands
            if len(page) < PAGE and not pools.look_ahead(self.graph, pool):
                return None
            self._look_at_clock()
            if self.cut:
                return None  # the next fetch continues behind the rows that this fetch checked

    def _fits(self, row: WatchRow, pool: Standing, entity: int, stands: Delivery | None) -> Row | None:
        if stands is not None and stands.watch == row.no and stands.fails and self._left_to_others(row, stands):
            return None
        matched = pools.first_match(self.graph, pool, entity)
        if matched is None:
            self.graph.session.run("mew_item_delete", {"pool": pool.no, "entity": entity})
            return None
        if row.spec.deliver_on == "tick":
            newest = max(one.tick for one in matched.names.values())
            if newest > self.graph.state.ticked:
                return None
        kept = surely_holds(row.spec.filter, matching.scope_of(self.graph, matched.names))
        return matched if kept else None

    def _left_to_others(self, row: WatchRow, stands: Delivery) -> bool:
        until = stands.due_at + PREFER_OTHERS
        if until <= self.graph.turn.now:
            return False
        if self.graph.session.row("mew_watch_others", {"pool": row.pool, "no": row.no}) is None:
            return False
        self.until = until if self.until is None else min(self.until, until)
        return True

    def _lease(self, row: WatchRow, pool: Standing, entity: int, matched: Row, stands: Delivery | None) -> None:
        turn = self.graph.turn
        lease = Lease(
            no=turn.next_lease_no(),
            tag=turn.dice.getrandbits(32),
            queue=0,
            grp=0,
            owner=row.id,
            instance=turn.instance,
            exclusivity="none",
            bulk=0,
            deadline=turn.now + row.spec.ack_timeout * 1000,
            made_at=turn.now,
            granted=[(0, entity, entity + 1)],
        )
        turn.add_lease(lease)
        deliveries = (stands.delivs if stands is not None else 0) + 1
        held = Delivery(entity, lease.no, stands.fails if stands else 0, deliveries, row.no, lease.deadline, 0)
        self.graph.session.run("mew_delivery_put", held._asdict())
        self.graph.session.run("mew_items_hold", {"entity": entity})
        names = matched.names
        match = match_of(row.spec.returns, pool.plan.variables, names, matching.scope_of(self.graph, names))
        delivery_id = ids.delivery_id(lease.no, lease.tag, 0, entity)
        tick = self.graph.state.tick
        events.append(self.graph, row, "consumed", {"match": match}, delivery_id, lease.no)
        row.sent, row.delivered, row.held = row.head, row.delivered + 1, row.held + 1
        events.save(self.graph, row)
        self.bytes += weight(match)
        limit = max(1, row.spec.max_redeliveries)
        self.events.append(
            WatchEvent(
                row.id,
                "consumed",
                tick,
                match,
                delivery_id=delivery_id,
                attempt=deliveries,
                failures=held.fails,
                limit=limit,
            )
        )
        self.room -= 1
