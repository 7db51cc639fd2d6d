"""Purge of a queue: skips and removes its messages, in chunks that are bounded in rows and in time."""

from __future__ import annotations

from itertools import takewhile

import msgspec

from ackwise.core.answers import PurgedQueue, QueuePurgePlace
from ackwise.core.commands import PurgeQueue
from ackwise.core.ids import LeaseNo
from ackwise.core.lane_range import LaneRange, merge_ranges
from ackwise.core.lifecycle import Guard, LifecycleEvent, State, targets
from ackwise.core.spans import Cursor, Lane, Span, cut
from ackwise.engine import catalog, retention
from ackwise.engine import cursors as engine_cursors
from ackwise.engine.catalog import QueueRow
from ackwise.engine.queue_removal import Budget
from ackwise.engine.segment import place, place_seq, to_end
from ackwise.engine.span_settlement import leave_lane
from ackwise.engine.turn import Turn

MOST_ROWS = 5000
"""Rows that one turn changes or removes. The time limit usually ends the turn earlier."""
LANE_PAGE = 100
SLICE_BYTES = 4 << 20
"""Bytes of the segments that one statement reads and removes. A larger segment is removed alone."""
ANY_AGE = 1 << 62
PURGED = "purged"
"""`end_kind` of a lease that lost its last messages to a purge."""
# A message of any state is skipped after a purge, as after a seek.
assert targets(LifecycleEvent.SEEK, Guard.BEHIND) == {State.SKIPPED}


def purge(turn: Turn, command: PurgeQueue) -> PurgedQueue:
    """Remove the next messages of a queue. Scheduled messages go first, so none is promoted to a lane that is done.

    A partition that another turn holds ends the chunk.
    """
    queue = catalog.queue(turn.session, command.queue)
    done = command.behind or QueuePurgePlace(turn.wall if command.until is None else command.until)
    done = msgspec.structs.replace(done, until=min(done.until, turn.wall))
    chunk = _Chunk(turn, queue, done)
    if done.lane == 0 and not chunk.remove_scheduled():
        return chunk.answer(0)
    lane = max(1, done.lane)
    while True:
        rows = turn.session.rows("purge_queue_lanes", {"queue": queue.id, "lane": lane, "limit": LANE_PAGE})
        for *columns, held in rows:
            stored = Lane(*columns)
            if (held or stored.head > stored.start) and not chunk.remove_lane(stored):
                return chunk.answer(stored.id)
            lane = stored.id + 1
        if len(rows) < LANE_PAGE:
            return chunk.answer(None)
        if not chunk.budget.slice:
            return chunk.answer(lane)


class _Chunk:
    """The part of a purge that one turn executes."""

    def __init__(self, turn: Turn, queue: QueueRow, done: QueuePurgePlace) -> None:
        self._turn, self._queue, self._done = turn, queue, done
        self.budget = Budget(turn, MOST_ROWS)
        self._messages, self._scheduled, self._skipped = done.messages, done.scheduled, done.skipped

    def answer(self, lane: int | None) -> PurgedQueue:
        """The counts so far, and the lane at which the purge continues."""
        counts = self._messages, self._scheduled, self._skipped
        return PurgedQueue(*counts, None if lane is None else QueuePurgePlace(self._done.until, lane, *counts))

    def remove_scheduled(self) -> bool:
        """Returns False if the budget ended first."""
        while size := self.budget.slice:
            where = {"queue": self._queue.id, "until": self._done.until, "limit": size}
            count = self._turn.session.run("purge_scheduled_until", where)
            self.budget.removed += count
            self._scheduled += count
            if count < size:
                return True
        return False

    def remove_lane(self, seen: Lane) -> bool:
        """Skip and remove the messages of a lane. Returns False if some are left for the next turn."""
        turn, session = self._turn, self._turn.session
        if not self.budget.slice or not session.lock_parts([seen.part], skip=True):
            return False
        lane = Lane(*session.rows("lane_by_id", {"id": seen.id})[0])  # again: the head may have risen before the lock
        below = self._target(lane)
        cursors = [Cursor(*r) for r in session.rows("cursors_of_lane", {"lane": lane.id})]
        if not all(self._skip(cursor, below) for cursor in cursors):
            return False
        while lane.start < below or self._has_restored(lane):
            if not (size := self._slice(lane, below)):
                return False
            removed = retention.remove(turn, self._queue, lane, cursors, bounds=[(below, ANY_AGE)], limit=size)
            if not removed:
                return True
            self.budget.removed += len(removed)
            self._messages += sum(place_seq(pos) + 1 - first for pos, first in removed if first >= lane.start)
            lane.start = max(lane.start, place_seq(removed[-1][0]) + 1)
        return True

    def _target(self, lane: Lane) -> int:
        """The first seq that was stored after the purge's instant. At most the head: later messages are not skipped."""
        session, until = self._turn.session, self._done.until
        newest = session.row("segment_at", to_end(lane.id, lane.head - 1)) if lane.head > lane.start else None
        if newest is None or newest[2] <= until:
            return lane.head
        return engine_cursors.seq_at(session, lane.id, lane.start, lane.head, until + 1)

    def _has_restored(self, lane: Lane) -> bool:
        """Whether a redrive stored a message again that retention had removed."""
        where = {"lo_pos": place(lane.id, 0), "end_pos": place(lane.id, lane.start)}
        return self._turn.session.row("segment_at", where) is not None

    def _slice(self, lane: Lane, below: int) -> int:
        """Segments that the next statement removes. 0 ends the turn."""
        if not (most := self.budget.slice):
            return 0
        where = {"lo_pos": place(lane.id, 0), "end_pos": place(lane.id, below), "limit": most}
        room, count = SLICE_BYTES, 0
        for _, _, size in self._turn.session.rows("segment_sizes", where):
            room -= size
            if count and room < 0:
                break
            count += 1
        return max(1, count)

    def _skip(self, cursor: Cursor, below: int) -> bool:
        """Skip the unfinished messages of a group in a lane. Returns False if some are left for the next turn."""
        before = cursor.skipped
        lost: dict[LeaseNo, list[LaneRange]] = {}
        finished = not cursor.held or self._skip_held(cursor, below, lost)
        if finished and cursor.next < below:
            cursor.skipped += below - cursor.next
            cursor.next = below
            self.budget.removed += 1
        if cursor.skipped != before:
            self._skipped += cursor.skipped - before
            self._save(cursor, lost)
        return finished

    def _skip_held(self, cursor: Cursor, below: int, lost: dict[LeaseNo, list[LaneRange]]) -> bool:
        """Cut the skipped messages out of the spans. Collects the ranges that leases held in `lost`."""
        while size := self.budget.slice:
            page = self._turn.spans("spans_in_order", lane=cursor.lane, grp=cursor.grp, after=0, limit=size)
            spans = [span for span in page if span.lo < below]
            usable = self._lock_leases(spans)
            for span in usable:
                self._skip_span(cursor, span, below)
                if span.lease is not None:
                    lost.setdefault(span.lease, []).append(span.part(span.lo, min(span.hi, below)).range)
            if len(usable) < len(spans):
                return False
            if len(spans) < size:
                return True
        return False

    def _skip_span(self, cursor: Cursor, span: Span, below: int) -> None:
        _, piece, after = cut(span, span.lo, below)
        self._turn.replace_span(span, [after] if after is not None else [])
        cursor.held -= len(piece)
        cursor.skipped += len(piece)
        self.budget.removed += 1

    def _lock_leases(self, spans: list[Span]) -> list[Span]:
        """The leading spans whose leases this turn could lock. The turn waits for no lease, so it cannot deadlock."""
        leases = {span.lease for span in spans if span.lease is not None}
        if not leases:
            return spans
        rows = self._turn.session.rows("leases_free", {"ids": msgspec.json.encode(sorted(leases)).decode()})
        free = {row[0] for row in rows}
        return list(takewhile(lambda span: span.lease is None or span.lease in free, spans))

    def _save(self, cursor: Cursor, lost: dict[LeaseNo, list[LaneRange]]) -> None:
        """Write the cursor, and the leases that lost messages. A lease without messages ends."""
        turn, opened = self._turn, False
        for no in sorted(lost):
            lease = turn.lease(no)
            if lease is None:
                continue
            turn.own_lease(lease)
            lease.lost = merge_ranges(lease.lost + lost[no], engine_cursors.MOST_LOST_RANGES)
            if turn.session.row("span_held_in_lane", {"lease": no, "lane": cursor.lane}) is None:
                leave_lane(cursor, lease)
                opened = opened or lease.exclusivity != "none"
            if turn.session.row("span_held", {"lease": no}) is None:
                turn.end_lease(lease, PURGED)
            else:
                turn.save_lease(lease)
        row = turn.session.row("group_by_id", {"id": cursor.grp})
        assert row is not None
        policy = catalog.policy_in_force(self._queue, catalog.group_from(row))
        engine_cursors.refresh(turn, cursor, policy, self._queue.name)
        if opened:
            engine_cursors.open_siblings(turn, [cursor], policy, self._queue.name)
