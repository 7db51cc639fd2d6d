"""A lease ran out, or its holder is lost."""

from __future__ import annotations

from ackwise.core.lifecycle import State
from ackwise.core.settlement import on_expiry
from ackwise.core.spans import Cursor, Lease, cut, merge_ranges
from ackwise.store.turn import dead, places
from ackwise.store.turn.context import Turn, lease_from
from ackwise.store.turn.ending import attempt_of, cursor_of, finish, holding, let_go


def expire(turn: Turn, limit: int, grp: int | None = None) -> int:
    """Leases past their deadline, of all groups or of one, give back what they hold."""
    where = {"now": turn.now, "limit": limit}
    rows = (
        turn.session.rows("leases_expired", where)
        if grp is None
        else turn.session.rows("leases_expired_in_group", {**where, "grp": grp})
    )
    touched = 0
    for row in rows:
        if touched >= limit:
            break
        lease = turn.lease(row[0]) or lease_from(row)
        if not lease.live(turn.now) and lease.ended_at is None and lock_lease(turn, lease.no):
            turn.own_lease(lease)
            if not lease.live(turn.now) and lease.ended_at is None:
                touched += max(1, expire_lease(turn, lease, limit - touched))
    return touched


def lock_lease(turn: Turn, no: int) -> bool:
    """Own every partition the lease holds something in; False leaves it to whoever owns one now."""
    parts = set()
    for span in turn.spans("spans_of_lease", lease=no):
        row = turn.session.row("lane_by_id", {"id": span.lane})
        if row:
            parts.add(row[1])
    return turn.session.lock_parts(sorted(parts), skip=True) == parts


def expire_before_claims(turn: Turn, limit: int) -> None:
    """So many of the store's, the oldest first; if that leaves some, each claim looks after its own group's."""
    if expire(turn, limit):
        row = turn.session.row("lease_next_deadline")
        turn.overdue = bool(row and row[0] is not None and row[0] <= turn.now)


def expire_own(turn: Turn, limit: int, grp: int) -> None:
    """What a group's claim must not miss, however many leases of others wait for the sweep; once in a turn."""
    if turn.overdue and grp not in turn.own_expired:
        turn.own_expired.add(grp)
        expire(turn, limit, grp)


def expire_lease(turn: Turn, lease: Lease, budget: int, kind: str = "expired", error: str = "lease expired") -> int:
    """A failure for each message that the lease still holds. How many it touched; at most `budget` die."""
    held = holding(turn, lease)
    spans = turn.spans("spans_of_lease", lease=lease.no)
    if held is None:
        lease.lost = lease.granted
        turn.end_lease(lease, "void")
        return 0
    lost = [(s.lane, s.lo, s.hi) for s in spans]
    cursors: dict[int, Cursor] = {}
    left = budget
    for span in spans:
        cursor = cursors.get(span.lane) or cursor_of(turn, span)
        cursors[span.lane] = cursor
        fate = on_expiry(held.policy, attempt_of(lease, span), turn.now, turn.roll())
        piece, rest = span, []
        if fate.state is State.DEAD and len(span) > left:
            if left == 0:
                continue
            _, piece, after = cut(span, span.lo, span.lo + left)
            rest = [after] if after is not None else []
        else:
            piece = span.part(span.lo, span.hi)
        piece.history = dead.add_history(
            piece.history, turn.now, "lease_expiry", lease.owner, None if kind == "expired" else error
        )
        turn.replace_span(span, finish(cursor, piece, rest, fate))
        if fate.state is State.DEAD:
            dead.bury(turn, held.queue, held.group, cursor, [dead.Burial(piece, fate, error)])
        elif fate.state is State.EXPIRED:
            dead.note_dropped(turn, lease.grp, [(piece.lane, piece.lo, piece.hi)])
        took = turn.now - lease.made_at
        turn.count(held.queue.name, held.group.name, "lease_expired", len(piece), took)
        if fate.state is not State.WAITING:
            turn.count(held.queue.name, held.group.name, fate.state.value, len(piece), took)
        left -= len(piece) if fate.state is State.DEAD else 0
    lease.lost = merge_ranges(lease.lost + lost, places.MOST_LOST_RANGES)
    if let_go(turn, held, lease, cursors, kind) and kind == "expired":
        turn.session.run("leases_count_expired", {"grp": lease.grp})
    return budget - left
