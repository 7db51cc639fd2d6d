"""A group's position in a lane: readiness, seek, advance."""

from __future__ import annotations

from typing import Protocol

from ackwise.core.commands import AdvanceGroup, SeekGroup
from ackwise.core.ids import LaneId, LeaseNo
from ackwise.core.lane_range import LaneRange, merge_ranges
from ackwise.core.lifecycle import Guard, LifecycleEvent, State, target
from ackwise.core.policy import QueuePolicy
from ackwise.core.queries import PreviewSeek
from ackwise.core.spans import Cursor
from ackwise.core.validation import MICROS
from ackwise.engine import catalog
from ackwise.engine.ports import Outdated, Row, Session
from ackwise.engine.segment import bounds, place_seq, to_end
from ackwise.engine.turn import Turn

MOST_LOST_RANGES = 1000
WAKE_ALL = 1 << 20
_READ = target(State.READY, LifecycleEvent.ADVANCE, Guard.UNREAD)


def cursor_from(row: Row) -> Cursor:
    return Cursor(*row)


class TimedSession(Protocol):
    """A session at one instant: a turn, or the snapshot of a query."""

    @property
    def session(self) -> Session: ...

    @property
    def wall(self) -> int: ...

    @property
    def shift(self) -> int: ...


def fresh_limit(timed: TimedSession, cursor: Cursor, policy: QueuePolicy, room: int) -> tuple[int, int | None]:
    """The first unread seq that the queue's delay or window still holds back, and when it is due.

    Both count from the creation of a message, so they follow the wall clock.
    """
    session, wall = timed.session, timed.wall
    if cursor.next >= cursor.head:
        return cursor.head, None
    if policy.window_seconds:
        newest = session.row("segment_at", to_end(cursor.lane, cursor.head - 1))
        opens_at = newest[2] + round(policy.window_seconds * MICROS) if newest else 0
        if opens_at > wall:
            return cursor.next, opens_at + timed.shift
    if not policy.delay_seconds:
        return cursor.head, None
    delay = round(policy.delay_seconds * MICROS)
    hi = min(cursor.head, cursor.next + room)
    row = session.row("segment_newer", {**bounds(cursor.lane, cursor.next, hi), "cutoff": wall - delay})
    if row is None or row[0] >= hi:
        return hi, None
    return max(cursor.next, row[0]), row[1] + delay + timed.shift


def ready_at(turn: Turn, cursor: Cursor, policy: QueuePolicy, *, returned: bool = True) -> int | None:
    """The earliest instant at which a claim could take a message of this lane. None while empty or exclusively held.

    `returned=False` says that all held messages are under a lease, which saves a query.
    """
    if cursor.exclusive:
        return None
    due: int | None = None
    if cursor.held and returned:
        where = {"lane": cursor.lane, "grp": cursor.grp}
        if policy.effective_order == "strict":
            first = turn.spans("span_first", **where)
            if first and first[0].lease is None:
                return max(first[0].due_at, turn.now)
        row = turn.session.row("span_next_due", where)
        due = row[0] if row else None
    if cursor.next < cursor.head:
        _, fresh = fresh_limit(turn, cursor, policy, 1)
        fresh = turn.now if fresh is None else fresh
        due = fresh if due is None else min(due, fresh)
    return None if due is None else max(due, turn.now)


def refresh(turn: Turn, cursor: Cursor, policy: QueuePolicy, queue: str, *, returned: bool = True) -> None:
    """Compute `ready_at`, write the cursor, and wake claims if the lane is ready.

    `returned=False` says that no message came back to the lane.
    """
    before, cursor.ready_at = cursor.ready_at, ready_at(turn, cursor, policy)
    turn.save_cursor(cursor)
    if cursor.ready_at is not None:
        earlier = before is None or cursor.ready_at < before
        if earlier:
            turn.announce(queue)
        turn.wake(queue, max(1, cursor.head - cursor.next + cursor.held), offers=returned or earlier)


def open_siblings(
    turn: Turn, cursors: list[Cursor], policy: QueuePolicy, queue: str, siblings: list[Cursor] | None = None
) -> None:
    """Make the other lanes of partitions claimable after an exclusive hold ended.

    `siblings` are the cursors of these other lanes, if the caller has read them.
    """
    known = {cursor.lane for cursor in cursors}
    for part, grp in {(cursor.part, cursor.grp) for cursor in cursors}:
        others = siblings
        if others is None:
            rows = turn.session.rows("cursors_of_part", {"part": part, "grp": grp})
            others = [cursor for cursor in map(cursor_from, rows) if cursor.lane not in known]
        for sibling in others:
            if sibling.ready_at is None and not sibling.exclusive and (sibling.held or sibling.next < sibling.head):
                refresh(turn, sibling, policy, queue)
    turn.wake(queue, WAKE_ALL)
    turn.announce(queue)


def seq_at(session: Session, lane: LaneId, start: int, head: int, instant: int) -> int:
    """The first seq of a lane stored at or after `instant`, by bisection over segments."""
    lo, hi = start, head
    while lo < hi:
        middle = (lo + hi) // 2
        row = session.row("segment_at", to_end(lane, middle))
        if row is None:
            hi = middle
        elif row[2] >= instant:
            hi = max(lo, min(middle, row[1]))
        else:
            lo = place_seq(row[0]) + 1
    return lo


def move_cursor(turn: Turn, cursor: Cursor, seq: int, policy: QueuePolicy | None = None, queue: str = "") -> None:
    """Start a new epoch of a cursor at `seq`. Leases lose their messages of the lane and are `stale` for them."""
    lost: dict[LeaseNo, list[LaneRange]] = {}
    where = {"lane": cursor.lane, "grp": cursor.grp}
    if cursor.held:
        for span in turn.spans("spans_of_cursor", **where):
            if span.lease is not None:
                lost.setdefault(span.lease, []).append(span.range)
        turn.session.run("spans_delete_cursor", where)
    cursor.restart(seq)
    turn.session.run("dropped_forget_cursor", where)
    for no, ranges in lost.items():
        take_from_lease(turn, no, ranges, "seek")
    if lost:
        open_siblings(turn, [cursor], policy or QueuePolicy(), queue)
    refresh(turn, cursor, policy or QueuePolicy(), queue)


def take_from_lease(turn: Turn, no: LeaseNo, ranges: list[LaneRange], kind: str) -> None:
    """Take ranges from a lease. The lease ends if it holds no more messages."""
    lease = turn.lease(no)
    if lease is None:
        return
    turn.own_lease(lease)
    if lease.ended_at is not None:
        return
    lease.lost = merge_ranges(lease.lost + ranges, MOST_LOST_RANGES)
    if turn.session.row("span_held", {"lease": no}) is None:
        turn.end_lease(lease, kind)
    else:
        turn.save_lease(lease)


def seek(turn: Turn, command: SeekGroup) -> int:
    """Move the cursors of a group, or of one of its partitions. Returns the number of lanes.

    Each cursor starts a new epoch and drops the messages that it held.
    """
    queue = catalog.queue(turn.session, command.queue)
    group = catalog.group(turn.session, queue, command.group)
    if command.partition is not None:
        part = catalog.part_id(turn.session, queue, command.partition)
        rows = turn.session.rows("cursors_of_part", {"part": part, "grp": group.id})
    else:
        rows = turn.session.rows("cursors_of_group", {"grp": group.id})
    turn.session.lock_parts(sorted({row[2] for row in rows}))
    catalog.check_group(turn, group, command.version)
    policy = catalog.policy_in_force(queue, group)
    for row in rows:
        cursor = turn.cursor(row[0], group.id)
        if cursor is None:
            raise Outdated(f"group {group.name!r} was deleted by another turn")
        move_cursor(turn, cursor, seek_target(turn.session, command, cursor), policy, queue.name)
    return len(rows)


def seek_target(session: Session, command: SeekGroup | PreviewSeek, cursor: Cursor) -> int:
    """The seq at which a seek moves a cursor."""
    match command.to:
        case "start":
            return cursor.start
        case "end":
            return cursor.head
        case number if command.by == "seq":
            return cursor.within(number)
        case instant:
            return seq_at(session, cursor.lane, cursor.start, cursor.head, instant)


def advance(turn: Turn, command: AdvanceGroup) -> int:
    """Move cursors forward and return how many messages count as acked. Delivered messages keep their state."""
    queue = catalog.queue(turn.session, command.queue)
    lanes = catalog.named_lanes(turn.session, queue, command.lanes)
    group = catalog.ensure_group(turn, queue, command.group, "all")
    turn.session.lock_parts(sorted({lane.part for lane in lanes}))
    policy = catalog.policy_in_force(queue, group)
    moved = 0
    for lane in lanes:
        cursor = turn.cursor(lane.id, group.id)
        if cursor is None:
            raise Outdated(f"group {group.name!r} was deleted by another turn")
        moved += _advance_cursor(turn, cursor, command.lanes[lane.id], policy)
    turn.count(queue.name, group.name, _READ.value, moved)
    return moved


def _advance_cursor(turn: Turn, cursor: Cursor, seq: int, policy: QueuePolicy) -> int:
    """Move one cursor forward. Claims are not woken, because fewer messages are claimable than before."""
    count = seq - cursor.next
    if count <= 0:
        return 0
    cursor.next = seq
    cursor.ack(_READ, count, seq - 1, turn.wall)
    if cursor.ready_at is not None:
        cursor.ready_at = ready_at(turn, cursor, policy)
    turn.save_cursor(cursor)
    return count
