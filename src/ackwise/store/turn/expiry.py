"""A lease ran out, or its holder is lost."""

from __future__ import annotations

from ackwise.core.lifecycle import State
from ackwise.core.settlement import on_expiry
from ackwise.core.spans import Cursor, Lease, cut, merge_ranges
from ackwise.store.turn import dead, places
from ackwise.store.turn.context import Turn
from ackwise.store.turn.ending import attempt_of, cursor_of, finish, holding, let_go


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
        took = turn.now - lease.made_at
        turn.count(held.queue.name, held.group.name, "lease_expired", len(piece), took)
        if fate.state is not State.WAITING:
            turn.count(held.queue.name, held.group.name, fate.state.value, len(piece), took)
        left -= len(piece) if fate.state is State.DEAD else 0
    lease.lost = merge_ranges(lease.lost + lost, places.MOST_LOST_RANGES)
    if let_go(turn, held, lease, cursors, kind) and kind == "expired":
        turn.session.run("leases_count_expired", {"grp": lease.grp})
    return budget - left
