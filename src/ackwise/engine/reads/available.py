"""Messages that a claim could take now, without claiming them."""

from __future__ import annotations

from ackwise.core import queries as q
from ackwise.core.policy import QueuePolicy
from ackwise.core.rows import AvailablePage, AvailableRange
from ackwise.core.spans import Cursor, Span
from ackwise.engine import catalog
from ackwise.engine import cursors as engine_cursors
from ackwise.engine.reads.registry import Snapshot, answers

MOST_LANES = 64
"""Lanes that one page visits."""
MOST_RETURNED = 5000
"""Returned spans of a lane that one page lists."""
SPAN_PAGE = 500
MAX_SEQ = (1 << 63) - 1


@answers(q.ListAvailable)
def list_available(snapshot: Snapshot, query: q.ListAvailable) -> AvailablePage:
    session, now = snapshot.session, snapshot.now
    queue = catalog.queue(session, query.queue)
    group = catalog.group(session, queue, query.group)
    page = AvailablePage([], query.after)
    if queue.paused:
        return page
    policy = catalog.policy_in_force(queue, group)
    prio, ready_at, lane = query.after
    where = {"grp": group.id, "now": now, "prio": prio, "ready_at": ready_at, "lane": lane, "limit": MOST_LANES}
    rows = session.rows("cursors_ready_after", where)
    room = query.limit
    for cursor in (Cursor(*row) for row in rows):
        visit = LaneVisit(snapshot, cursor, policy)
        returned, page.returned_next = visit.returned(query.returned_after)
        page.ranges += returned
        room, page.more = visit.in_order(query.seen.get(cursor.lane), room)
        page.ranges += visit.ranges
        page.until = _earlier(page.until, visit.until())
        if page.more or page.returned_next != visit.no_more_returned:
            page.more = True
            return page
        page.returned_next = None
        page.next = (cursor.prio, cursor.ready_at or 0, cursor.lane)
    page.more = len(rows) == MOST_LANES
    if not page.more:
        row = session.row("cursors_next_due", {"grp": group.id, "now": now})
        page.until = _earlier(page.until, row[0] if row else None)
    return page


class LaneVisit:
    """One lane of a page."""

    def __init__(self, snapshot: Snapshot, cursor: Cursor, policy: QueuePolicy) -> None:
        self._snapshot, self._session = snapshot, snapshot.session
        self._cursor, self._policy = cursor, policy
        self._where = {"lane": cursor.lane, "grp": cursor.grp, "now": snapshot.now}
        self._generation = (int(cursor.grp), cursor.epoch)
        self._fresh_due: int | None = None
        self.ranges: list[AvailableRange] = []
        self.no_more_returned = (int(cursor.lane), 0, 0)

    def returned(self, after: tuple[int, int, int] | None) -> tuple[list[AvailableRange], tuple[int, int, int]]:
        """Messages that came back from a delivery, and the place behind which more follow. The newest come first."""
        if not self._cursor.held or after == self.no_more_returned:
            return [], self.no_more_returned
        due_at, hi = after[1:] if after is not None and after[0] == self._cursor.lane else (self._snapshot.now, MAX_SEQ)
        where = {"lane": self._cursor.lane, "grp": self._cursor.grp, "due_at": due_at, "hi": hi, "limit": MOST_RETURNED}
        spans = [Span(*row) for row in self._session.rows("spans_returned", where)]
        last = spans[-1] if len(spans) == MOST_RETURNED else None
        spans.sort(key=lambda span: span.lo)
        ranges = [
            AvailableRange(span.lane, span.lo, span.hi, self._generation, span.due_at, span.delivs) for span in spans
        ]
        return ranges, self.no_more_returned if last is None else (int(last.lane), last.due_at, last.hi)

    def in_order(self, seen: tuple[int, int, int] | None, room: int) -> tuple[int, bool]:
        """Collect up to `room` messages behind the seen place. Returns the room left and whether more follow."""
        cursor = self._cursor
        place = seen[2] if seen is not None and seen[:2] == self._generation else 0
        if cursor.held and place < cursor.next:
            room, more = self._add_held(place, room)
            if more:
                return 0, True
        lo = max(cursor.next, place)
        wanted = max(1, room) + lo - cursor.next
        fresh_hi, self._fresh_due = engine_cursors.fresh_limit(self._snapshot, cursor, self._policy, wanted)
        if lo >= fresh_hi:
            return room, False
        lo += self._add(lo, fresh_hi, room)
        room -= lo - max(cursor.next, place)
        return room, lo < fresh_hi or (not room and self._fresh_due is None and lo < cursor.head)

    def _add_held(self, place: int, room: int) -> tuple[int, bool]:
        """Collect due messages of spans behind a place. Returns the room that is left and whether more follow."""
        while True:
            rows = self._session.rows("spans_due_after", {**self._where, "after": place, "limit": SPAN_PAGE})
            for span in (Span(*row) for row in rows):
                lo = max(span.lo, place)
                added = self._add(lo, span.hi, room)
                room, place = room - added, lo + added
                if place < span.hi:
                    return 0, True
            if len(rows) < SPAN_PAGE:
                return room, False

    def _add(self, lo: int, hi: int, room: int) -> int:
        hi = min(hi, lo + room)
        if lo < hi:
            self.ranges.append(AvailableRange(self._cursor.lane, lo, hi, self._generation))
        return hi - lo

    def until(self) -> int | None:
        """When the next message of the lane becomes available."""
        row = self._session.row("span_due_later", self._where) if self._cursor.held else None
        return _earlier(self._fresh_due, row[0] if row else None)


def _earlier(known: int | None, other: int | None) -> int | None:
    return min((at for at in (known, other) if at is not None), default=None)
