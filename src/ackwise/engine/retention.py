"""Removes old segments, tombstones, dedupe keys and ledger minutes."""

from __future__ import annotations

from itertools import takewhile

from ackwise.core.commands import PruneQueue
from ackwise.core.events import MessagesPruned
from ackwise.core.lifecycle import Guard, LifecycleEvent, State, target
from ackwise.core.spans import Cursor, Lane
from ackwise.core.validation import MICROS
from ackwise.engine import catalog, pipelines, traces
from ackwise.engine import cursors as engine_cursors
from ackwise.engine.catalog import QueueRow
from ackwise.engine.ports import Row
from ackwise.engine.queue_rounds import lanes_with_old_rows, queues_with_old_rows
from ackwise.engine.segment import Segment, place, place_seq, to_end
from ackwise.engine.turn import Turn

TOMBSTONES_KEPT_FOR = 7 * 24 * 3600 * MICROS
MOST_TOMBSTONES = 200_000
LEDGER_KEPT_MINUTES = 31 * 24 * 60
MOST_PRUNED = 1000
"""Segments that one command removes at most."""
CLOCK_STEP = 60 * MICROS
"""Margin for a clock that was set back: a dedupe generation is dated by the clock at its end."""
INSTANCE_KEPT_FOR = 24 * 3600 * MICROS
_PRUNED = target(State.READY, LifecycleEvent.RETENTION, Guard.UNREAD)


def retain(turn: Turn, limit: int) -> int:
    """Remove whole segments that are too old. Both retention times of a policy count from the push."""
    removed = 0
    for queue in queues_with_old_rows(turn, "retain", "old_lanes", _retention_ages):
        newest = turn.wall - round(min(_retention_ages(queue)) * MICROS)
        for lane in lanes_with_old_rows(turn, queue, newest):
            removed += _prune(turn, queue, lane, limit - removed)
            if removed >= limit:
                return removed
    return removed


def prune(turn: Turn, command: PruneQueue) -> int:
    """Remove whole segments below the named seqs that every group has finished. Returns the number of messages."""
    queue = catalog.queue(turn.session, command.queue)
    lanes = catalog.named_lanes(turn.session, queue, command.lanes)
    turn.session.lock_parts(sorted({lane.part for lane in lanes}))
    messages = segments = 0
    for lane in lanes:
        _, done, cursors = _finished(turn, lane)
        if cursors and segments < MOST_PRUNED:
            bound = min(done, command.lanes[lane.id])
            removed = remove(turn, queue, lane, cursors, bounds=[(bound, turn.wall)], limit=MOST_PRUNED - segments)
            segments += len(removed)
            messages += sum(place_seq(pos) + 1 - first for pos, first in removed)
    return messages


def _prune(turn: Turn, queue: QueueRow, lane: Lane, limit: int) -> int:
    _, done, cursors = _finished(turn, lane)
    bounds = []
    if queue.policy.retention_seconds is not None:
        row = turn.session.row("span_lowest_read", {"lane": lane.id})
        unread = row[0] if row and row[0] is not None else lane.head
        bounds.append((unread, turn.wall - round(queue.policy.retention_seconds * MICROS)))
    if queue.policy.completed_retention_seconds is not None and cursors:
        bounds.append((done, turn.wall - round(queue.policy.completed_retention_seconds * MICROS)))
    return len(remove(turn, queue, lane, cursors, bounds=bounds, limit=limit))


def _finished(turn: Turn, lane: Lane) -> tuple[int, int, list[Cursor]]:
    """The seq below which no group holds a message, the seq below which every group is done, and all cursors."""
    row = turn.session.row("span_lowest", {"lane": lane.id})
    cursors = [Cursor(*r) for r in turn.session.rows("cursors_of_lane", {"lane": lane.id})]
    free = row[0] if row and row[0] is not None else lane.head
    return free, min([free, *(cursor.next for cursor in cursors)]), cursors


def remove(
    turn: Turn, queue: QueueRow, lane: Lane, cursors: list[Cursor], *, bounds: list[tuple[int, int]], limit: int
) -> list[tuple[int, int]]:
    """Remove whole segments below a bound that were stored at or before its cutoff. Returns (pos, first) of each."""
    start = lane.start
    removed: list[tuple[int, int]] = []
    for bound, cutoff in bounds:
        if bound <= 0 or len(removed) >= limit:
            continue
        where = {"lo_pos": place(lane.id, 0), "end_pos": place(lane.id, bound), "limit": limit - len(removed)}
        rows = _older(turn.session.rows("segments_first", where), cutoff)
        for row in rows:
            if place_seq(row[0]) < lane.start:
                continue  # a redrive restored this message; the husk of its old segment exists
            segment = Segment(*row)
            turn.session.run(
                "husk_insert",
                {
                    "pos": row[0],
                    "first": row[1],
                    "created_at": row[2],
                    "queue": queue.id,
                    "body": segment.husk(),
                },
            )
        if rows:
            turn.session.run("segment_delete", {"lo_pos": rows[0][0], "hi_pos": rows[-1][0]})
            start = max(start, place_seq(rows[-1][0]) + 1)
            removed += [(row[0], row[1]) for row in rows]
    if removed:
        _move_start(turn, queue, lane, start, cursors)
    return removed


def _older(rows: list[Row], cutoff: int) -> list[Row]:
    """The leading rows up to the first one after the cutoff. A clock that was set back leaves no hole."""
    return list(takewhile(lambda row: row[2] <= cutoff, rows))


def _move_start(turn: Turn, queue: QueueRow, lane: Lane, start: int, cursors: list[Cursor]) -> None:
    """Move the start of a lane and count the removed unread messages of each group as expired."""
    oldest = turn.session.row("segment_at", to_end(lane.id, 0))
    start_at = oldest[2] if oldest else catalog.NOTHING_STORED
    turn.session.run("lane_pruned", {"id": lane.id, "start": start, "start_at": start_at})
    turn.note(MessagesPruned, queue.name, start - lane.start)
    turn.session.run("dropped_forget_lane", {"lane": lane.id, "below": start})
    turn.session.run("trace_prune", {"lane": lane.id, "below": start})
    for cursor in cursors:
        expired = _expire_bypassed(turn, cursor, start) if cursor.held else 0
        cursor.held -= expired
        if cursor.next < start:
            expired += start - cursor.next
            cursor.next, cursor.start = start, start
        if expired:
            group = turn.session.row("group_by_id", {"id": cursor.grp})
            turn.count(queue.name, group[2] if group else "", _PRUNED.value, expired)
            cursor.finish(_PRUNED, expired)
            engine_cursors.refresh(turn, cursor, queue.policy, queue.name)


def _expire_bypassed(turn: Turn, cursor: Cursor, start: int) -> int:
    """Remove bypassed messages below `start` from their spans. Returns their number. They count as unread."""
    expired = 0
    for span in turn.spans("spans_bypassed", lane=cursor.lane, grp=cursor.grp, below=start):
        rest = [span.part(start, span.hi)] if span.hi > start else []
        turn.replace_span(span, rest)
        expired += min(start, span.hi) - span.lo
    return expired


def forget(turn: Turn, limit: int) -> int:
    """Remove old ended leases, husks, dedupe keys, traces, pipelines and ledger minutes, at most `limit` of each."""
    row = turn.session.row("lease_last")
    last = (row[0] or 0) if row else 0
    floor = last - MOST_TOMBSTONES
    cutoff = turn.now - TOMBSTONES_KEPT_FOR
    removed = turn.session.run("leases_forget", {"below": last, "cutoff": cutoff, "floor": floor, "limit": limit})
    for queue in queues_with_old_rows(turn, "forget", "old_husks", _dedupe_ages):
        window = round(queue.policy.dedupe_seconds * MICROS)
        where = {"queue": queue.id, "cutoff": turn.wall - window, "limit": limit}
        removed += turn.session.run("husks_forget", where)
    windows = catalog.dedupe_windows(turn.session)
    if windows is None or windows[0]:
        longest = round(windows[1] * MICROS) if windows is not None else 0
        removed += turn.dedupe.forget(turn.wall - longest - CLOCK_STEP, limit)
    before = turn.wall // (60 * MICROS) - LEDGER_KEPT_MINUTES
    removed += turn.session.run("ledger_forget", {"before": before, "limit": limit})
    removed += pipelines.forget(turn, limit)
    removed += traces.forget(turn, limit, turn.wall - LEDGER_KEPT_MINUTES * 60 * MICROS)
    turn.session.run("instance_forget", {"before": turn.now - INSTANCE_KEPT_FOR})
    return removed


def shrink(turn: Turn, _: int) -> int:
    """Return some free pages of the database to the file system."""
    released = turn.session.release_pages()
    if released:
        turn.rounds["shrink"] = 1
    else:
        turn.rounds.pop("shrink", None)
    return released


def _retention_ages(queue: QueueRow) -> list[float]:
    kept = (queue.policy.retention_seconds, queue.policy.completed_retention_seconds)
    return [seconds for seconds in kept if seconds is not None]


def _dedupe_ages(queue: QueueRow) -> list[float]:
    return [queue.policy.dedupe_seconds] if queue.policy.dedupe_seconds else []
