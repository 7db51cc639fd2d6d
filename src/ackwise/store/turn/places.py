"""Where a group stands in a lane: when it is next claimable, and how it is moved."""

from __future__ import annotations

from ackwise.core.limits import MICROS
from ackwise.core.policy import QueuePolicy
from ackwise.core.spans import Cursor, merge_ranges
from ackwise.store.segment import bounds, place_seq, to_end
from ackwise.store.session import Row, Session
from ackwise.store.turn.context import Turn

MOST_LOST_RANGES = 1000
WAKE_ALL = 1 << 20


def cursor_from(row: Row) -> Cursor:
    return Cursor(*row)


def fresh_limit(session: Session, cursor: Cursor, policy: QueuePolicy, now: int, room: int) -> tuple[int, int | None]:
    """The first unread seq that a queue-wide delay or window still holds back, and when it is due."""
    if cursor.next >= cursor.head:
        return cursor.head, None
    if policy.window_seconds:
        newest = session.row("segment_at", to_end(cursor.lane, cursor.head - 1))
        opens_at = newest[2] + round(policy.window_seconds * MICROS) if newest else 0
        if opens_at > now:
            return cursor.next, opens_at
    if not policy.delay_seconds:
        return cursor.head, None
    delay = round(policy.delay_seconds * MICROS)
    hi = min(cursor.head, cursor.next + room)
    row = session.row("segment_newer", {**bounds(cursor.lane, cursor.next, hi), "cutoff": now - delay})
    if row is None or row[0] >= hi:
        return hi, None
    return max(cursor.next, row[0]), row[1] + delay


def ready_at(turn: Turn, cursor: Cursor, policy: QueuePolicy, *, returned: bool = True) -> int | None:
    """The earliest instant a claim could take something here; None while empty or exclusively held.

    `returned=False` when everything held is known to be under a lease.
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
        _, fresh = fresh_limit(turn.session, cursor, policy, turn.now, 1)
        fresh = turn.now if fresh is None else fresh
        due = fresh if due is None else min(due, fresh)
    return None if due is None else max(due, turn.now)


def refresh(turn: Turn, cursor: Cursor, policy: QueuePolicy, queue: str) -> None:
    """Write the cursor with its new `ready_at`."""
    before, cursor.ready_at = cursor.ready_at, ready_at(turn, cursor, policy)
    turn.save_cursor(cursor)
    if cursor.ready_at is not None:
        if before is None or cursor.ready_at < before:
            turn.announce(queue)
        turn.wake(queue, max(1, cursor.head - cursor.next + cursor.held))


def open_doors(
    turn: Turn, cursors: list[Cursor], policy: QueuePolicy, queue: str, beside: list[Cursor] | None = None
) -> None:
    """An exclusive hold ended: other lanes of those partitions, or of the whole queue, may be claimable again."""
    known = {cursor.lane for cursor in cursors}
    for part, grp in {(cursor.part, cursor.grp) for cursor in cursors}:
        if beside is None:
            rows = turn.session.rows("cursors_of_part", {"part": part, "grp": grp})
            siblings = [cursor for cursor in map(cursor_from, rows) if cursor.lane not in known]
        else:
            siblings = beside
        for sibling in siblings:
            if sibling.ready_at is None and not sibling.exclusive and (sibling.held or sibling.next < sibling.head):
                refresh(turn, sibling, policy, queue)
    turn.wake(queue, WAKE_ALL)
    turn.announce(queue)


def seq_at(session: Session, lane: int, start: int, head: int, instant: int) -> int:
    """The first seq of a lane made at or after `instant`: bisected over segments."""
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


def move_cursor(turn: Turn, cursor: Cursor, target: int, policy: QueuePolicy | None = None, queue: str = "") -> None:
    """A new epoch at `target`. Leases lose what they held here, so their settlements read stale."""
    lost: dict[int, list[tuple[int, int, int]]] = {}
    where = {"lane": cursor.lane, "grp": cursor.grp}
    if cursor.held:
        for span in turn.spans("spans_of_cursor", **where):
            if span.lease is not None:
                lost.setdefault(span.lease, []).append((span.lane, span.lo, span.hi))
        turn.session.run("spans_delete_cursor", where)
    cursor.epoch += 1
    cursor.first = cursor.next = cursor.floor = min(max(target, cursor.start), cursor.head)
    cursor.held = cursor.acked = cursor.dead = cursor.skipped = cursor.expired = cursor.leased = cursor.exclusive = 0
    cursor.exclusive_owner = None
    cursor.last_seq = cursor.last_at = None
    cursor.nacked = 0
    turn.session.run("dropped_forget_cursor", where)
    for no, ranges in lost.items():
        take_from_lease(turn, no, ranges, "seek")
    if lost:
        open_doors(turn, [cursor], policy or QueuePolicy(), queue)
    refresh(turn, cursor, policy or QueuePolicy(), queue)


def take_from_lease(turn: Turn, no: int, ranges: list[tuple[int, int, int]], kind: str) -> None:
    """A lease loses these ranges; without any left it ends."""
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
