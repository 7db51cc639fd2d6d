"""What time alone makes due: expiry, promotion, max wait, retention, forgetting. Each duty is bounded per call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile

import msgspec

from ackwise.core import limits
from ackwise.core.answers import Swept
from ackwise.core.commands import PruneQueue, Sweep
from ackwise.core.errors import BadInput
from ackwise.core.lifecycle import State
from ackwise.core.limits import MICROS
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.settlement import Fate, on_max_wait
from ackwise.core.spans import Cursor, Lane, Span, cut
from ackwise.store.graph import running as graph
from ackwise.store.segment import Segment, place, place_seq, to_end
from ackwise.store.session import Row
from ackwise.store.turn import catalog, dead, places
from ackwise.store.turn.catalog import GroupRow, QueueRow
from ackwise.store.turn.context import Turn
from ackwise.store.turn.ending import Holding, finish
from ackwise.store.turn.expiry import expire
from ackwise.store.turn.purge import purge
from ackwise.store.turn.push import Appender

TOMBSTONES_KEPT_FOR = 7 * 24 * 3600 * MICROS
MOST_TOMBSTONES = 200_000
LEDGER_KEPT_MINUTES = 31 * 24 * 60
LANE_PAGE = 1000
QUEUE_PAGE = 500
"""Queues that one call of a duty looks at: a turn must not grow with the catalogue."""
MOST_PRUNED = 1000
"""Segments that one command removes."""
CLOCK_STEP = 60 * MICROS
"""Keys are dated by the clock of their generation's end; one that was set back must not let them go too early."""
INSTANCE_KEPT_FOR = 24 * 3600 * MICROS


def sweep(turn: Turn, command: Sweep) -> Swept:
    limits.count(command.limit, "limit")
    unknown = set(command.duties) - set(_DUTIES)
    if unknown:
        raise BadInput(f"there is no duty {sorted(unknown)[0]!r}; known: {', '.join(_DUTIES)}")
    done = {duty: _DUTIES[duty](turn, command.limit) for duty in command.duties}
    more = any(n >= command.limit or turn.rounds.get(duty) for duty, n in done.items())
    return Swept(done, more=more, next_at=next_due(turn))


def next_due(turn: Turn) -> int | None:
    rows = (turn.session.row("lease_next_deadline"), turn.session.row("scheduled_next"))
    times = [row[0] for row in rows if row and row[0] is not None]
    return min(times) if times else None


def promote(turn: Turn, limit: int) -> int:
    """Scheduled messages whose time has come get their seq."""
    rows = turn.session.rows("scheduled_due", {"now": turn.now, "limit": limit})
    if not rows:
        return 0
    names = catalog.part_names(turn.session, {row[2] for row in rows})
    locked = turn.session.lock_parts(sorted(names), skip=True)
    rows = [row for row in rows if row[2] in locked or row[2] not in names]
    appender = Appender(turn)
    for no, queue, part, prio, _, created_at, body in rows:
        owner = catalog.queue_of_id(turn.session, queue)
        if owner is not None and part in names:
            columns = Segment(place(0, 0), 0, created_at, body).columns()
            appender.promote(owner, names[part][0], prio, columns)
        turn.session.run("scheduled_delete", {"no": no})
    appender.flush()
    return len(rows)


def max_wait(turn: Turn, limit: int) -> int:
    """Messages that waited too long die, once per group that has not finished them; never while leased."""
    touched = 0
    for queue in _round(turn, "max_wait", "old_lanes", _waits, "queues_max_wait"):
        if queue.policy.max_wait_seconds is None:
            continue
        cutoff = turn.now - round(queue.policy.max_wait_seconds * MICROS)
        if not turn.session.rows("lanes_with_old", {"queue": queue.id, "cutoff": cutoff, "after": 0, "limit": 1}):
            continue
        groups = [catalog.group_from(r) for r in turn.session.rows("groups_of_queue", {"queue": queue.id})]
        if not groups:
            groups = [catalog.ensure_group(turn, queue, QUEUE_MODE, "all")]
        for lane in _old_lanes(turn, queue, cutoff, "lanes_unfinished"):
            bound = places.seq_at(turn.session, lane.id, lane.start, lane.head, cutoff + 1)
            for group in groups:
                touched += _bury_waiting(turn, queue, group, lane.id, bound, limit - touched)
                if touched >= limit:
                    return touched
    return touched


def _bury_waiting(turn: Turn, queue: QueueRow, group: GroupRow, lane: int, bound: int, limit: int) -> int:
    cursor = turn.cursor(lane, group.id)
    if cursor is None or (cursor.next >= bound and not cursor.held):
        return 0
    held = Holding(queue, group, group.policy.over(queue.policy))
    touched = 0
    for span in turn.spans("spans_in_order", lane=lane, grp=group.id, after=-1, limit=limit) if cursor.held else []:
        if span.lease is None and span.lo < bound and touched < limit:
            before, piece, after = cut(span, span.lo, min(bound, span.lo + limit - touched))
            piece.history = dead.add_history(piece.history, turn.now, "max_wait", None, None)
            rest = [s for s in (before, after) if s is not None]
            fate = on_max_wait(held.policy, piece.fails)
            turn.replace_span(span, finish(cursor, piece, rest, fate))
            if fate.state is State.DEAD:
                _bury(turn, held, cursor, piece, fate)
            else:
                dead.note_dropped(turn, cursor.grp, [(piece.lane, piece.lo, piece.hi)])
            touched += len(piece)
    hi = min(bound, cursor.next + limit - touched)
    if hi > cursor.next:
        touched += _bury_unread(turn, held, cursor, hi)
    if touched:
        places.refresh(turn, cursor, held.policy, queue.name)
        turn.count(queue.name, group.name, "dead", touched)
    return touched


def _bury(turn: Turn, held: Holding, cursor: Cursor, span: Span, fate: Fate) -> None:
    dead.bury(turn, held.queue, held.group, cursor, [dead.Burial(span, fate, "waited too long")])


def _bury_unread(turn: Turn, held: Holding, cursor: Cursor, hi: int) -> int:
    span = Span(cursor.lane, cursor.grp, cursor.next, hi)
    span.history = dead.add_history("", turn.now, "max_wait", None, None)
    fate = on_max_wait(held.policy, 0)
    if fate.state is State.DEAD:
        _bury(turn, held, cursor, span, fate)
        cursor.dead += len(span)
    else:
        cursor.expired += len(span)
        dead.note_dropped(turn, cursor.grp, [(span.lane, span.lo, span.hi)])
    cursor.next = hi
    return len(span)


def retain(turn: Turn, limit: int) -> int:
    """Whole segments go when they are too old, or finished by every group for long enough."""
    removed = 0
    for queue in _round(turn, "retain", "old_lanes", _ages):
        newest = turn.now - round(min(_ages(queue)) * MICROS)
        for lane in _old_lanes(turn, queue, newest):
            removed += _prune(turn, queue, lane, limit - removed)
            if removed >= limit:
                return removed
    return removed


def prune(turn: Turn, command: PruneQueue) -> int:
    """What the caller has a copy of goes, segment by segment, as far as every group has finished it; how much."""
    queue = catalog.queue(turn.session, command.queue)
    lanes = catalog.named_lanes(turn.session, queue, command.lanes)
    turn.session.lock_parts(sorted({lane.part for lane in lanes}))
    messages = segments = 0
    for lane in lanes:
        _, done, cursors = _finished(turn, lane)
        if cursors and segments < MOST_PRUNED:
            bound = min(done, command.lanes[lane.id])
            gone = _remove(turn, queue, lane, cursors, [(bound, turn.now)], MOST_PRUNED - segments)
            segments += len(gone)
            messages += sum(place_seq(pos) + 1 - first for pos, first in gone)
    return messages


def _prune(turn: Turn, queue: QueueRow, lane: Lane, limit: int) -> int:
    free, done, cursors = _finished(turn, lane)
    bounds = []
    if queue.policy.retention_seconds is not None:
        bounds.append((free, turn.now - round(queue.policy.retention_seconds * MICROS)))
    if queue.policy.completed_retention_seconds is not None and cursors:
        bounds.append((done, turn.now - round(queue.policy.completed_retention_seconds * MICROS)))
    return len(_remove(turn, queue, lane, cursors, bounds, limit))


def _finished(turn: Turn, lane: Lane) -> tuple[int, int, list[Cursor]]:
    """The places below which no group holds anything, and below which every group has finished everything."""
    row = turn.session.row("span_lowest", {"lane": lane.id})
    cursors = [Cursor(*r) for r in turn.session.rows("cursors_of_lane", {"lane": lane.id})]
    free = row[0] if row and row[0] is not None else lane.head
    return free, min([free, *(cursor.next for cursor in cursors)]), cursors


def _remove(
    turn: Turn, queue: QueueRow, lane: Lane, cursors: list[Cursor], bounds: list[tuple[int, int]], limit: int
) -> list[tuple[int, int]]:
    """Whole segments below a bound and made at or before a cutoff go; where they ended and began."""
    start = lane.start
    removed: list[tuple[int, int]] = []
    for bound, cutoff in bounds:
        if bound <= 0 or len(removed) >= limit:
            continue
        where = {"lo_pos": place(lane.id, 0), "end_pos": place(lane.id, bound), "limit": limit - len(removed)}
        rows = _older(turn.session.rows("segments_first", where), cutoff)
        for found in rows:
            if place_seq(found[0]) < lane.start:
                continue  # put back by a redrive: the husk of its old segment is still there
            segment = Segment(*found)
            turn.session.run(
                "husk_insert",
                {
                    "pos": found[0],
                    "first": found[1],
                    "created_at": found[2],
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
    """The leading rows made at or before the cutoff: a clock that jumped back makes no hole."""
    return list(takewhile(lambda row: row[2] <= cutoff, rows))


def _move_start(turn: Turn, queue: QueueRow, lane: Lane, start: int, cursors: list[Cursor]) -> None:
    """The log starts later; what a group had not read of it is counted as expired."""
    oldest = turn.session.row("segment_at", to_end(lane.id, 0))
    start_at = oldest[2] if oldest else catalog.NOTHING_STORED
    turn.session.run("lane_pruned", {"id": lane.id, "start": start, "start_at": start_at})
    turn.session.run("dropped_forget_lane", {"lane": lane.id, "below": start})
    for cursor in cursors:
        if cursor.next < start:
            group = turn.session.row("group_by_id", {"id": cursor.grp})
            turn.count(queue.name, group[2] if group else "", "expired", start - cursor.next)
            cursor.expired += start - cursor.next
            cursor.next, cursor.start = start, start
            places.refresh(turn, cursor, queue.policy, queue.name)


def forget(turn: Turn, limit: int) -> int:
    """Tombstones, husks, dedupe keys and ledger minutes, a bounded number at a time."""
    row = turn.session.row("lease_last")
    last = (row[0] or 0) if row else 0
    floor = last - MOST_TOMBSTONES
    cutoff = turn.now - TOMBSTONES_KEPT_FOR
    gone = turn.session.run("leases_forget", {"below": last, "cutoff": cutoff, "floor": floor, "limit": limit})
    for queue in _round(turn, "forget", "old_husks", _windows):
        window = round(queue.policy.dedupe_seconds * MICROS)
        where = {"queue": queue.id, "cutoff": turn.now - window, "limit": limit}
        gone += turn.session.run("husks_forget", where)
    windows = catalog.dedupe_windows(turn.session)
    if windows is None or windows[0]:
        longest = round(windows[1] * MICROS) if windows is not None else 0
        gone += turn.dedupe.forget(turn.now - longest - CLOCK_STEP, limit)
    before = turn.now // (60 * MICROS) - LEDGER_KEPT_MINUTES
    gone += turn.session.run("ledger_forget", {"before": before, "limit": limit})
    turn.session.run("instance_forget", {"before": turn.now - INSTANCE_KEPT_FOR})
    return gone


def shrink(turn: Turn, _: int) -> int:
    """Give free pages of the database back to the file system, a slice at a time."""
    released = turn.session.release_pages()
    if released:
        turn.rounds["shrink"] = 1
    else:
        turn.rounds.pop("shrink", None)
    return released


def _round(
    turn: Turn, duty: str, looks: str, ages: Callable[[QueueRow], list[float]], statement: str = "queues_after"
) -> Iterator[QueueRow]:
    """The queues of a page that may hold old rows. `ages` gives the seconds after which rows of a queue are old.

    One statement checks all queues of the page. The next call continues behind the last queue that the duty finished.
    """
    rows = turn.session.rows(statement, {"after": turn.rounds.get(duty, 0), "limit": QUEUE_PAGE})
    queues = list(map(catalog.queue_from, rows))
    youngest = {queue.id: min(seconds) for queue in queues if (seconds := ages(queue))}
    old: set[int] = set()
    if youngest:
        cutoff = turn.now - round(min(youngest.values()) * MICROS)
        ids = msgspec.json.encode(list(youngest)).decode()
        old = {row[0] for row in turn.session.rows(looks, {"ids": ids, "cutoff": cutoff})}
    for queue in queues:
        if queue.id in old:
            yield queue
        turn.rounds[duty] = queue.id
    if len(rows) < QUEUE_PAGE:
        turn.rounds.pop(duty, None)


def _waits(queue: QueueRow) -> list[float]:
    return [seconds for seconds in (queue.policy.max_wait_seconds,) if seconds is not None]


def _ages(queue: QueueRow) -> list[float]:
    kept = (queue.policy.retention_seconds, queue.policy.completed_retention_seconds)
    return [seconds for seconds in kept if seconds is not None]


def _windows(queue: QueueRow) -> list[float]:
    return [queue.policy.dedupe_seconds] if queue.policy.dedupe_seconds else []


def _free(turn: Turn, lanes: list[Lane]) -> list[Lane]:
    """The lanes that nobody else works in; the others are left to the next sweep."""
    locked = turn.session.lock_parts(sorted({lane.part for lane in lanes}), skip=True)
    return [lane for lane in lanes if lane.part in locked]


def _old_lanes(turn: Turn, queue: QueueRow, cutoff: int, statement: str = "lanes_with_old") -> Iterator[Lane]:
    """Lanes with something old, page by page: what cannot go yet in one must not hide the next."""
    after = 0
    while True:
        where = {"queue": queue.id, "cutoff": cutoff, "after": after, "limit": LANE_PAGE}
        lanes = [Lane(*row) for row in turn.session.rows(statement, where)]
        yield from _free(turn, lanes)
        if len(lanes) < LANE_PAGE:
            return
        after = lanes[-1].id


_DUTIES: dict[str, Callable[[Turn, int], int]] = {
    "expire": expire,
    "promote": promote,
    "max_wait": max_wait,
    "retain": retain,
    "forget": forget,
    "purge": purge,
    "shrink": shrink,
    "graph": graph.sweep,
}
