"""How what a lease holds ends: pieces are cut out of spans, returned, buried or done, and the lease lets go."""

from __future__ import annotations

import msgspec

from ackwise.core.answers import Settled
from ackwise.core.commands import Settlement
from ackwise.core.lifecycle import State
from ackwise.core.policy import QueuePolicy
from ackwise.core.settlement import Attempt, Fate, Outcome, Reason, Verdict, on_reject, on_release, on_retry
from ackwise.core.spans import Cursor, Lease, Span, cut
from ackwise.store.turn import catalog, dead, places
from ackwise.store.turn.catalog import GroupRow, QueueRow
from ackwise.store.turn.context import Turn

MOST_NAMED = 100
"""Dead letters that a settlement names in its answer."""


class Target(msgspec.Struct, frozen=True):
    """Messages [lo, hi) of a lane under a lease; `lane` None means everything the lease holds."""

    lease: Lease
    lane: int | None
    lo: int = 0
    hi: int = 0
    whole: bool = False


class Holding(msgspec.Struct, frozen=True):
    """The queue, group and policy that decide about a lease."""

    queue: QueueRow
    group: GroupRow
    policy: QueuePolicy


def holding(turn: Turn, lease: Lease) -> Holding | None:
    """None when the queue or group is gone."""
    known: Holding | None = turn.loaded.get(lease.grp)
    if known is not None:
        return known
    row = turn.session.row("group_by_id", {"id": lease.grp})
    queue = catalog.queue_of_id(turn.session, lease.queue) if row else None
    if row is None or queue is None:
        return None
    group = catalog.group_from(row)
    known = turn.loaded[lease.grp] = Holding(queue, group, group.policy.over(queue.policy))
    return known


def spans_of(turn: Turn, held: Holding, target: Target) -> list[Span]:
    """The spans of the lease (of nobody's: those that nobody holds) that the target touches."""
    if target.lane is None:
        return turn.spans("spans_of_lease", lease=target.lease.no)
    where = {"lane": target.lane, "grp": held.group.id}
    spans = turn.spans("spans_inside", **where, lo=target.lo, hi=target.hi) if target.hi - target.lo > 1 else []
    spans += turn.spans("span_across", **where, hi=target.hi if target.hi - target.lo > 1 else target.lo)
    holder = target.lease.no or None
    return [s for s in spans if s.lease == holder and s.lo < target.hi and s.hi > target.lo]


def nobodys(turn: Turn, group: GroupRow, lane: int, seq: int) -> Target:
    """A message that was handed out and is held by nobody now, as if under a lease of its own."""
    lease = Lease(
        no=0,
        tag=0,
        queue=group.queue,
        grp=group.id,
        owner="",
        instance=turn.instance,
        exclusivity="none",
        bulk=0,
        deadline=turn.now + 1,
        made_at=turn.now,
        granted=[(lane, seq, seq + 1)],
    )
    return Target(lease, lane, seq, seq + 1)


def act(turn: Turn, target: Target, entry: Settlement) -> Settled:
    """Settle what of the target is outstanding."""
    lease = target.lease
    held = holding(turn, lease)
    if held is None:
        return Settled(Verdict.STALE)
    spans = spans_of(turn, held, target)
    pieces = [cut(s, target.lo, target.hi) if target.lane is not None else (None, s, None) for s in spans]
    if target.whole and sum(len(piece) for _, piece, _ in pieces) != target.hi - target.lo:
        # Not even `already`: whoever asks for the whole wants to hear that it was not this call that settled it.
        return Settled(Verdict.UNKNOWN)
    if not lease.live(turn.now) or not spans:
        return Settled(_refusal(turn, target, spans))
    verdicts: dict[Verdict, int] = {}
    reason: Reason | None = None
    took = turn.now - lease.made_at
    failures = 0
    buried = len(turn.buried)
    cursors: dict[int, Cursor] = {}
    beside: list[Cursor] | None = None
    if target.lane is not None and lease.exclusivity != "none":
        # Its siblings are needed as well, if this ends the lease's hold of the partition.
        rows = turn.session.rows("cursors_beside", {"lane": target.lane, "grp": lease.grp})
        places_here = list(map(places.cursor_from, rows))
        cursors = {cursor.lane: cursor for cursor in places_here if cursor.lane == target.lane}
        beside = [cursor for cursor in places_here if cursor.lane != target.lane]
    for span, (before, piece, after) in zip(spans, pieces, strict=True):
        cursor = cursors.get(piece.lane) or cursor_of(turn, piece)
        cursors[piece.lane] = cursor
        rest = [s for s in (before, after) if s is not None]
        verdict, why, fails = _apply(turn, held, lease, cursor, span, piece, rest, entry)
        verdicts[verdict] = verdicts.get(verdict, 0) + len(piece)
        dropped = verdict is Verdict.DEAD and not held.policy.dead_letters
        reason = reason if dropped else why or reason
        word = State.EXPIRED.value if dropped else verdict.value
        turn.count(held.queue.name, held.group.name, word, len(piece), took)
        failures = fails
    granted = sum(hi - lo for lane, lo, hi in lease.granted if lane == target.lane)
    emptied = target.lane is None or sum(len(piece) for _, piece, _ in pieces) == granted
    ended = let_go(turn, held, lease, cursors, emptied=emptied, beside=beside)
    died = verdicts.pop(Verdict.DEAD, 0)
    overall = next(iter(verdicts), Verdict.DEAD)
    named = turn.buried[buried : buried + MOST_NAMED]
    return Settled(overall, sum(verdicts.values()) + died, ended, None if verdicts else reason, died, failures, named)


def cursor_of(turn: Turn, span: Span) -> Cursor:
    cursor = turn.cursor(span.lane, span.grp)
    assert cursor is not None
    return cursor


def _refusal(turn: Turn, target: Target, spans: list[Span]) -> Verdict:
    """`stale` for what the lease lost or let run out, `already` for what it settled."""
    lease = target.lease
    if lease.ended_at is None and spans:
        return Verdict.STALE
    if target.lane is None:
        return Verdict.STALE if lease.lost else Verdict.ALREADY
    lost = any(lane == target.lane and lo < target.hi and target.lo < hi for lane, lo, hi in lease.lost)
    return Verdict.STALE if lost else Verdict.ALREADY


def attempt_of(lease: Lease, span: Span) -> Attempt:
    return Attempt(span.fails, span.delivs, bool(span.probation), lease.alone, bool(lease.bulk))


def _apply(
    turn: Turn,
    held: Holding,
    lease: Lease,
    cursor: Cursor,
    span: Span,
    piece: Span,
    rest: list[Span],
    entry: Settlement,
) -> tuple[Verdict, Reason | None, int]:
    """Do to one piece of a span what its fate says."""
    if entry.outcome is Outcome.ACK:
        cursor.held -= len(piece)
        cursor.acked += len(piece)
        cursor.settled_at = turn.now
        turn.replace_span(span, rest)
        return Verdict.ACKED, None, piece.fails
    fate = _fate(turn, held.policy, attempt_of(lease, piece), entry)
    piece.history = dead.add_history(piece.history, turn.now, entry.outcome.value, lease.owner, entry.error)
    finish(turn, held, cursor, span, piece, rest, fate, entry.error or "", entry.error_type or "")
    if fate.state is State.WAITING:
        return (Verdict.RELEASED if entry.outcome is Outcome.RELEASE else Verdict.RETRIED), None, fate.failures
    return Verdict.DEAD, fate.reason, fate.failures


def _fate(turn: Turn, policy: QueuePolicy, attempt: Attempt, entry: Settlement) -> Fate:
    match entry.outcome:
        case Outcome.RELEASE:
            return on_release(policy, attempt, turn.now)
        case Outcome.REJECT:
            return on_reject(policy, attempt, undecodable=entry.undecodable)
        case _:
            return on_retry(policy, attempt, turn.now, entry.delay, turn.roll())


def finish(
    turn: Turn,
    held: Holding,
    cursor: Cursor,
    span: Span,
    piece: Span,
    rest: list[Span],
    fate: Fate,
    error: str,
    error_type: str = "",
) -> None:
    """Return a piece to its lane, bury it, or drop it."""
    if fate.state is State.WAITING:
        piece.lease, piece.owner = None, None
        piece.fails, piece.due_at, piece.probation = fate.failures, fate.due_at, int(fate.probation)
        turn.replace_span(span, [piece, *rest])
        return
    size = len(piece)
    cursor.held -= size
    if fate.state is State.DEAD:
        dead.bury(turn, held.queue, held.group, cursor, piece, fate, error, error_type)
        cursor.dead += size
    else:
        cursor.expired += size
    turn.replace_span(span, rest)


def let_go(
    turn: Turn,
    held: Holding,
    lease: Lease,
    cursors: dict[int, Cursor],
    kind: str = "settled",
    *,
    emptied: bool = False,
    beside: list[Cursor] | None = None,
) -> bool:
    """Free the lanes that the lease has finished, and end it when it holds nothing more.

    `emptied`: all that was granted of these lanes is finished, so it need not be asked; `beside` are the other places
    of their partition, where they are known.
    """
    if not lease.no:
        for cursor in cursors.values():
            places.refresh(turn, cursor, held.policy, held.queue.name)
        return False
    finished = 0
    for lane, cursor in cursors.items():
        if emptied or turn.session.row("span_held_in_lane", {"lease": lease.no, "lane": lane}) is None:
            finished += 1
            _leave_lane(cursor, lease)
        places.refresh(turn, cursor, held.policy, held.queue.name)
    if finished and lease.exclusivity != "none":
        places.open_doors(turn, list(cursors.values()), held.policy, held.queue.name, beside)
    if finished < len(cursors):
        return False
    elsewhere = any(lane not in cursors for lane, _, _ in lease.granted)
    if elsewhere and turn.session.row("span_held", {"lease": lease.no}) is not None:
        return False
    turn.end_lease(lease, kind)
    return True


def _leave_lane(cursor: Cursor, lease: Lease) -> None:
    cursor.leased -= 1
    if lease.exclusivity != "none":
        cursor.exclusive -= 1
        if cursor.exclusive == 0:
            cursor.exclusive_owner = None
