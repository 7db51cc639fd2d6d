"""How what a lease holds ends: pieces are cut out of spans, returned, buried or done, and the lease lets go."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ackwise.core.answers import Settled
from ackwise.core.commands import Settlement
from ackwise.core.lifecycle import State
from ackwise.core.policy import QueuePolicy
from ackwise.core.settlement import Attempt, Fate, Outcome, Reason, Verdict, on_reject, on_release, on_retry
from ackwise.core.spans import Cursor, Lease, Span, cut, joined, merge_ranges
from ackwise.store.turn import catalog, dead, places, reading
from ackwise.store.turn.catalog import GroupRow, QueueRow
from ackwise.store.turn.context import Turn
from ackwise.store.turn.span_edit import SpanEdit

SETTLED, RETURNED, BURIED = "settled", "returned", "buried"
"""How settlements end a lease: piece by piece or acked, given back as a whole, dead as a whole."""
_WHOLE = {Verdict.ACKED: SETTLED, Verdict.DEAD: BURIED}


def ended_by_settling(lease: Lease, *, whole: bool = False) -> bool:
    """Whether settlements ended it: piece by piece unless it may be as a `whole`."""
    return lease.ended_at is not None and (
        lease.end_kind in (SETTLED, BURIED) or (whole and lease.end_kind == RETURNED)
    )


class Target(msgspec.Struct, frozen=True):
    """Messages [lo, hi) of a lane under a lease; `lane` None means everything the lease holds."""

    lease: Lease
    lane: int | None
    lo: int = 0
    hi: int = 0
    whole: bool = False

    def within(self, ranges: list[tuple[int, int, int]]) -> bool:
        """Whether any of (lane, lo, hi) has something of it."""
        return any(lane == self.lane and lo < self.hi and self.lo < hi for lane, lo, hi in ranges)


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
    holder = target.lease.no or None
    found = _touched(turn, held, target.lane, target.lo, target.hi)
    return [s for s in found if s.lease == holder and s.lo < target.hi and s.hi > target.lo]


def _touched(turn: Turn, held: Holding, lane: int, lo: int, hi: int) -> list[Span]:
    """All spans of the group that [lo, hi) touches, and perhaps the next one."""
    where = {"lane": lane, "grp": held.group.id}
    spans = turn.spans("spans_inside", **where, lo=lo, hi=hi) if hi - lo > 1 else []
    return spans + turn.spans("span_across", **where, hi=hi if hi - lo > 1 else lo)


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
    ending = Ending.of(turn, target.lease, [target])
    if ending is None:
        return Settled(Verdict.STALE)
    answer = ending.settle(target, entry)
    answer.lease_ended = ending.close() or answer.lease_ended
    return answer


class Ending:
    """What a lease holds in one lane, or in all: read once, cut in memory as often as settlements say, written once."""

    def __init__(self, turn: Turn, held: Holding, lease: Lease, lane: int | None, spans: list[Span]) -> None:
        self._turn, self._held, self._lease, self._lane = turn, held, lease, lane
        self._spans = SpanEdit(spans)
        self._cursors: dict[int, Cursor] = {}
        self._beside: list[Cursor] | None = None
        self._burials: dict[int, list[dead.Burial]] = {}
        self._settled = 0
        self._end_kind = SETTLED
        self._returned = False
        self._dropped: list[tuple[int, int, int]] = []

    @classmethod
    def of(cls, turn: Turn, lease: Lease, targets: Sequence[Target]) -> Ending | None:
        """Ready to settle these targets, all in one lane or one that is the whole lease; None if the group is gone."""
        held = holding(turn, lease)
        if held is None:
            return None
        lane = targets[0].lane
        if lane is None:
            return cls(turn, held, lease, None, turn.spans("spans_of_lease", lease=lease.no))
        found: dict[int, Span] = {}
        for lo, hi in joined([(target.lo, target.hi) for target in targets], reading.NEAR):
            found.update((span.hi, span) for span in _touched(turn, held, lane, lo, hi))
        return cls(turn, held, lease, lane, [found[hi] for hi in sorted(found)])

    def in_one_span(self, target: Target) -> bool:
        spans = self._touching(target)
        return len(spans) == 1 and spans[0].lo <= target.lo and target.hi <= spans[0].hi

    def _touching(self, target: Target) -> list[Span]:
        if target.lane is None:
            return self._spans.all()
        holder = self._lease.no or None
        return [span for span in self._spans.touching(target.lane, target.lo, target.hi) if span.lease == holder]

    def settle(self, target: Target, entry: Settlement) -> Settled:
        turn, held, lease = self._turn, self._held, self._lease
        spans = self._touching(target)
        pieces = [cut(s, *((target.lo, target.hi) if target.lane is not None else (s.lo, s.hi))) for s in spans]
        if target.whole and sum(len(piece) for _, piece, _ in pieces) != target.hi - target.lo:
            # Not even `already`: whoever asks for the whole wants to hear that it was not this call that settled it.
            return Settled(Verdict.UNKNOWN)
        if not lease.live(turn.now) or not spans:
            verdict = _refusal(target, spans)
            if verdict is not Verdict.ALREADY:
                return Settled(verdict)
            unacked = entry.outcome is Outcome.ACK and self._ended_otherwise(target)
            return Settled(verdict, lease_ended=ended_by_settling(lease, whole=target.lane is None), unacked=unacked)
        verdicts: dict[Verdict, int] = {}
        reason: Reason | None = None
        failures = 0
        letters: list[str] = []
        for span, (before, piece, after) in zip(spans, pieces, strict=True):
            rest = [s for s in (before, after) if s is not None]
            verdict, why, failures = self._apply(self._cursor(piece), span, piece, rest, entry, letters)
            verdicts[verdict] = verdicts.get(verdict, 0) + len(piece)
            dropped = verdict is Verdict.DEAD and not held.policy.dead_letters
            reason = reason if dropped else why or reason
            word = State.EXPIRED.value if dropped else verdict.value
            turn.count(held.queue.name, held.group.name, word, len(piece), turn.now - lease.made_at)
            self._settled += len(piece)
        died = verdicts.pop(Verdict.DEAD, 0)
        overall = next(iter(verdicts), Verdict.DEAD)
        self._end_kind = SETTLED if target.lane is not None else _WHOLE.get(overall, RETURNED)
        count, reason = sum(verdicts.values()) + died, None if verdicts else reason
        return Settled(overall, count, False, reason, died, failures, letters)

    def _ended_otherwise(self, target: Target) -> bool:
        """Whether something that the lease has settled did not end in an ack. Of a whole lease: all that it still held
        then."""
        if target.lane is None:
            return self._lease.end_kind in (RETURNED, BURIED)
        if self._spans.touching(target.lane, target.lo, target.hi):
            return True
        buried = [(target.lane, one.span.lo, one.span.hi) for one in self._burials.get(target.lane, ())]
        if target.within(buried + self._dropped + self._lease.dropped):
            return True
        where = {"lane": target.lane, "grp": self._lease.grp, "lo": target.lo, "hi": target.hi}
        return self._turn.session.row("dead_any", where) is not None

    def _cursor(self, piece: Span) -> Cursor:
        if piece.lane in self._cursors:
            return self._cursors[piece.lane]
        if self._lane is None or self._lease.exclusivity == "none":
            found = cursor_of(self._turn, piece)
        else:
            # Its siblings are needed as well, if this ends the lease's hold of the partition.
            rows = self._turn.session.rows("cursors_beside", {"lane": self._lane, "grp": self._lease.grp})
            here = list(map(places.cursor_from, rows))
            found = next(cursor for cursor in here if cursor.lane == self._lane)
            self._beside = [cursor for cursor in here if cursor.lane != self._lane]
        self._cursors[piece.lane] = found
        return found

    def _apply(
        self, cursor: Cursor, span: Span, piece: Span, rest: list[Span], entry: Settlement, letters: list[str]
    ) -> tuple[Verdict, Reason | None, int]:
        """Do to one piece of a span what its fate says; `letters` will name its dead letters."""
        turn, held, lease = self._turn, self._held, self._lease
        if entry.outcome is Outcome.ACK:
            cursor.held -= len(piece)
            cursor.acked += len(piece)
            cursor.note_acked(piece.hi - 1, turn.now)
            self._spans.replace(span, rest)
            return Verdict.ACKED, None, piece.fails
        if entry.outcome is not Outcome.RELEASE:
            cursor.note_nacked(piece.hi - 1, len(piece), turn.now)
        fate = _fate(turn, held.policy, attempt_of(lease, piece), entry)
        piece.history = dead.add_history(
            piece.history, turn.now, entry.outcome.value, lease.owner, entry.error, entry.trace
        )
        self._spans.replace(span, finish(cursor, piece, rest, fate))
        if fate.state is State.WAITING:
            self._returned = True
            return (Verdict.RELEASED if entry.outcome is Outcome.RELEASE else Verdict.RETRIED), None, fate.failures
        if fate.state is State.DEAD:
            burial = dead.Burial(piece, fate, entry.error or "", entry.error_type or "", letters)
            self._burials.setdefault(cursor.lane, []).append(burial)
        else:
            self._dropped.append((piece.lane, piece.lo, piece.hi))
        return Verdict.DEAD, fate.reason, fate.failures

    def close(self) -> bool:
        """Write it all. Whether the lease has ended."""
        if not self._settled:
            return False
        turn, held, lease = self._turn, self._held, self._lease
        dead.note_dropped(turn, lease.grp, self._dropped)
        for lane, burials in self._burials.items():
            dead.bury(turn, held.queue, held.group, self._cursors[lane], burials)
        self._spans.write(turn)
        granted = sum(hi - lo for lane, lo, hi in lease.granted if lane == self._lane)
        emptied = self._lane is None or self._settled == granted
        changed = self._tell_lease()
        ended = let_go(turn, held, lease, self._cursors, self._end_kind, emptied=emptied, beside=self._beside)
        if changed and not ended:
            turn.save_lease(lease)
        return ended

    def _tell_lease(self) -> bool:
        """What went back or was dropped; whether the lease did not know."""
        lease = self._lease
        if not lease.no or not (self._dropped or (self._returned and not lease.returned)):
            return False
        self._turn.own_lease(lease)
        lease.returned = int(self._returned or lease.returned)
        lease.dropped = merge_ranges(lease.dropped + self._dropped, places.MOST_LOST_RANGES)
        return True


def cursor_of(turn: Turn, span: Span) -> Cursor:
    cursor = turn.cursor(span.lane, span.grp)
    assert cursor is not None
    return cursor


def _refusal(target: Target, spans: list[Span]) -> Verdict:
    """`stale` for what the lease lost or let run out, `already` for what it settled."""
    lease = target.lease
    if lease.ended_at is None and spans:
        return Verdict.STALE
    if target.lane is None:
        return Verdict.STALE if lease.lost else Verdict.ALREADY
    return Verdict.STALE if target.within(lease.lost) else Verdict.ALREADY


def attempt_of(lease: Lease, span: Span) -> Attempt:
    return Attempt(span.fails, span.delivs, bool(span.probation), lease.alone, bool(lease.bulk))


def _fate(turn: Turn, policy: QueuePolicy, attempt: Attempt, entry: Settlement) -> Fate:
    match entry.outcome:
        case Outcome.RELEASE:
            return on_release(policy, attempt, turn.now)
        case Outcome.REJECT:
            return on_reject(policy, attempt, undecodable=entry.undecodable)
        case _:
            return on_retry(policy, attempt, turn.now, entry.delay, turn.roll())


def finish(cursor: Cursor, piece: Span, rest: list[Span], fate: Fate) -> list[Span]:
    """Return a piece to its lane, or count it out; what is left where its span was. The caller buries the dead."""
    if fate.state is State.WAITING:
        piece.lease, piece.owner = None, None
        piece.fails, piece.due_at, piece.probation = fate.failures, fate.due_at, int(fate.probation)
        return [piece, *rest]
    cursor.held -= len(piece)
    if fate.state is State.DEAD:
        cursor.dead += len(piece)
    else:
        cursor.expired += len(piece)
    return rest


def let_go(
    turn: Turn,
    held: Holding,
    lease: Lease,
    cursors: dict[int, Cursor],
    kind: str = SETTLED,
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
    if kind in (SETTLED, RETURNED, BURIED):
        turn.own_lease(lease)
        if lease.ended_at is not None:
            return True
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
