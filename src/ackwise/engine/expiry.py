"""Leases past their deadline, broken connections, dead brokers."""

from __future__ import annotations

from ackwise.core import ids, validation
from ackwise.core.commands import Beat, Break
from ackwise.core.ids import GroupId, LeaseNo
from ackwise.core.lane_range import merge_ranges
from ackwise.core.lifecycle import LifecycleEvent, State
from ackwise.core.settlement import Fate, on_expiry
from ackwise.core.spans import Cursor, Lease, Span, cut
from ackwise.core.validation import MICROS
from ackwise.engine import cursors as engine_cursors
from ackwise.engine import dead_letters
from ackwise.engine.selectors import find_lease
from ackwise.engine.span_settlement import (
    GroupContext,
    apply_fate,
    attempt_of,
    context_of,
    cursor_of,
    leave_lanes,
)
from ackwise.engine.turn import Turn, lease_from


def expire(turn: Turn, limit: int, grp: GroupId | None = None) -> int:
    """Expire leases past their deadline, of all groups or of one.

    Returns what counts against `limit`: the dead messages of each lease, at least one per lease.
    """
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


def lock_lease(turn: Turn, no: LeaseNo) -> bool:
    """Lock every partition in which the lease holds messages. False if another turn holds one of them."""
    parts = set()
    for span in turn.spans("spans_of_lease", lease=no):
        row = turn.session.row("lane_by_id", {"id": span.lane})
        if row:
            parts.add(row[1])
    return turn.session.lock_parts(sorted(parts), skip=True) == parts


def expire_before_claims(turn: Turn, limit: int) -> None:
    """Expire up to `limit` leases, oldest first. If more are left, each claim expires the leases of its own group."""
    expired = expire(turn, limit)
    if expired or turn.memory.alone:
        row = turn.session.row("lease_next_deadline")
        deadline = row[0] if row else None
        turn.overdue = bool(expired) and deadline is not None and deadline <= turn.now
        turn.memory.learn_next_deadline(deadline)


def expire_group(turn: Turn, limit: int, grp: GroupId) -> None:
    """Expire leases of a group before its claim, once per turn. Only for a turn that is `overdue`."""
    if grp not in turn.expired_groups:
        turn.expired_groups.add(grp)
        expire(turn, limit, grp)


def expire_lease(turn: Turn, lease: Lease, budget: int, kind: str = "expired", error: str = "lease expired") -> int:
    """End a lease with a failure for each message that it still holds.

    At most `budget` messages die. Returns how many did.
    """
    context = context_of(turn, lease)
    spans = turn.spans("spans_of_lease", lease=lease.no)
    if context is None:
        lease.lost = lease.granted
        turn.end_lease(lease, "void")
        return 0
    expiry = _LeaseExpiry(turn, context, lease, kind, error)
    died = 0
    for span in spans:
        died += expiry.fail(span, budget - died)
    lease.lost = merge_ranges(lease.lost + [span.range for span in spans], engine_cursors.MOST_LOST_RANGES)
    if leave_lanes(turn, context, lease, expiry.cursors, kind) and kind == "expired":
        turn.session.run("leases_count_expired", {"grp": lease.grp})
        turn.count_expired_lease(context.queue.name, context.group.name)
    return died


class _LeaseExpiry:
    """Fails the spans of a lease that ends by expiry or with its connection."""

    def __init__(self, turn: Turn, context: GroupContext, lease: Lease, kind: str, error: str) -> None:
        self._turn, self._context, self._lease = turn, context, lease
        self._error = error
        self._note = None if kind == "expired" else error
        self.cursors: dict[int, Cursor] = {}

    def fail(self, span: Span, budget: int) -> int:
        """Fail a span. At most `budget` of its messages die. The lease keeps the others. Returns how many died."""
        turn, lease = self._turn, self._lease
        if span.lane not in self.cursors:
            self.cursors[span.lane] = cursor_of(turn, span)
        fate = on_expiry(self._context.policy, attempt_of(lease, span), turn.now, turn.roll())
        dies = fate.state is State.DEAD
        count = min(len(span), budget) if dies else len(span)
        if count:
            _, piece, after = cut(span, span.lo, span.lo + count)
            piece.history = dead_letters.add_history(
                piece.history, turn.wall, LifecycleEvent.LEASE_EXPIRY.value, owner=lease.owner, error=self._note
            )
            rest = [after] if after is not None else []
            turn.replace_span(span, apply_fate(self.cursors[span.lane], piece, rest, fate))
            self._record(piece, fate)
        return count if dies else 0

    def _record(self, piece: Span, fate: Fate) -> None:
        """Count the messages of a piece, and record them if they died or were dropped."""
        turn, queue, group = self._turn, self._context.queue, self._context.group
        took = turn.now - self._lease.made_at
        turn.count(queue.name, group.name, "lease_expired", len(piece), took)
        if fate.state is State.WAITING:
            return
        turn.count(queue.name, group.name, fate.state.value, len(piece), took)
        if fate.state is State.DEAD:
            burial = dead_letters.Burial(piece, fate, self._error)
            dead_letters.bury(turn, queue, group, self.cursors[piece.lane], [burial])
        else:
            dead_letters.note_dropped(turn, piece.grp, [piece.range])


SILENT_FOR = 30 * MICROS
"""A broker without a heartbeat for this long is dead."""
_ALL = 1 << 40


def break_leases(turn: Turn, command: Break) -> int:
    """End the live leases among these ids and return their number."""
    return sum(_break(turn, lease.no) for text in command.lease_ids if (lease := find_lease(turn, text)) is not None)


def beat(turn: Turn, command: Beat) -> int:
    """Record a broker's heartbeat, and end the connection leases of dead brokers.

    A broker's first heartbeat also asks the database which brokers are gone. Later ones only check for silence.
    """
    validation.name(command.instance, "instance")
    first = turn.session.row("instance_get", {"id": command.instance}) is None
    recorded = turn.session.run("instance_beat", {"id": command.instance, "now": turn.now})
    for instance, heard_at in turn.session.rows("instances_other", {"id": command.instance}):
        if heard_at <= turn.now - SILENT_FOR or (first and turn.session.gone(instance)):
            _break_connections(turn, instance)
    return recorded


def _break_connections(turn: Turn, instance: str) -> None:
    """End the leases of a broker's connections. Leases that another turn works on wait for the next heartbeat."""
    rows = turn.session.rows("leases_of_connections", {"instance": instance, "prefix": ids.connection_prefix(instance)})
    locked = [no for (no,) in rows if lock_lease(turn, no)]
    for no in locked:
        _break(turn, no)
    if len(locked) == len(rows) and not turn.extensions.need_instance(turn.session, instance):
        turn.session.run("instance_delete", {"id": instance})


def _break(turn: Turn, no: LeaseNo) -> bool:
    lease = turn.lease(no)
    if lease is None or not lease.live(turn.now):
        return False
    expire_lease(turn, lease, _ALL, "broken", "connection lost")
    return True
