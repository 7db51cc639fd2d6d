"""Cuts settled ranges out of spans and ends leases."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from ackwise.core import refusals
from ackwise.core.answers import Settled
from ackwise.core.commands import Settlement
from ackwise.core.ids import GroupId, LaneId
from ackwise.core.lane_range import LaneRange, join_near, merge_ranges
from ackwise.core.lifecycle import LifecycleEvent, State, target
from ackwise.core.policy import QueuePolicy
from ackwise.core.settlement import (
    SETTLED_AS,
    Attempt,
    Fate,
    Outcome,
    Reason,
    Verdict,
    last_failure,
    on_reject,
    on_release,
    on_retry,
)
from ackwise.core.spans import BURIED, RETURNED, SETTLED, Cursor, Lease, LeasedRange, NumberedRange, Span, cut
from ackwise.engine import catalog, dead_letters, segment_reads
from ackwise.engine import cursors as engine_cursors
from ackwise.engine.catalog import GroupRow, QueueRow
from ackwise.engine.turn import Turn, span_params

Answers = dict[int, Settled]
"""Answers by the numbers of their entries in the call."""
_ACKED = target(State.LEASED, LifecycleEvent.ACK)


class GroupContext(msgspec.Struct, frozen=True):
    """Group, queue and policy in force: the input of decisions about a lease."""

    queue: QueueRow
    group: GroupRow
    policy: QueuePolicy


def context_of(turn: Turn, lease: Lease) -> GroupContext | None:
    """The context of a lease, read once per turn. None if its queue or group was deleted."""
    known: GroupContext | None = turn.loaded.get(lease.grp)
    if known is not None:
        return known
    row = turn.session.row("group_by_id", {"id": lease.grp})
    if row is None:
        return None
    group, queue = catalog.group_and_queue_from(row)
    known = turn.loaded[lease.grp] = GroupContext(queue, group, catalog.policy_in_force(queue, group))
    return known


def spans_in(turn: Turn, leased: LeasedRange) -> list[Span]:
    """Spans of the lease that overlap a range of one lane. Lease number 0 stands for spans without a lease."""
    assert leased.lane is not None
    holder = leased.lease.no or None
    spans = _spans_around(turn, leased.lane, leased.lease.grp, leased.lo, leased.hi)
    return [s for s in spans if s.lease == holder and s.lo < leased.hi and s.hi > leased.lo]


def _spans_around(turn: Turn, lane: LaneId, grp: GroupId, lo: int, hi: int) -> list[Span]:
    """All spans of the group that overlap [lo, hi). May include the next span after them."""
    where = {"lane": lane, "grp": grp}
    spans = turn.spans("spans_inside", **where, lo=lo, hi=hi) if hi - lo > 1 else []
    return spans + turn.spans("span_across", **where, hi=hi if hi - lo > 1 else lo)


def settle_each(turn: Turn, entries: Sequence[Settlement], ranges: Sequence[NumberedRange], answers: Answers) -> None:
    """Settle entries one by one, in the order of the call."""
    for number, leased in ranges:
        answers[number] = settle_range(turn, leased, entries[number])


def settle_range(turn: Turn, leased: LeasedRange, entry: Settlement) -> Settled:
    """Settle the messages of a range that are still outstanding."""
    settlement = SpanSettlement.of(turn, leased.lease, [leased])
    if settlement is None:
        return Settled(refusals.GROUP_DELETED)
    answer = settlement.settle(leased, entry)
    settlement.close()
    return answer


class SpanSettlement:
    """Settles ranges of one lease, in one lane or in all.

    Reads the spans once, cuts them in memory for each entry, and writes them once in `close`.
    """

    def __init__(self, turn: Turn, context: GroupContext, lease: Lease, lane: LaneId | None, spans: list[Span]) -> None:
        self._turn, self._context, self._lease, self._lane = turn, context, lease, lane
        self._spans = SpanEdit(spans)
        self._cursors: dict[int, Cursor] = {}
        self._siblings: list[Cursor] | None = None
        self._burials: dict[int, list[dead_letters.Burial]] = {}
        self._counts: dict[str, int] = {}
        """Settled messages by outcome, for the ledger."""
        self._end_kind = SETTLED
        self._returned = False
        self._dropped: list[LaneRange] = []

    @classmethod
    def of(cls, turn: Turn, lease: Lease, ranges: Sequence[LeasedRange]) -> SpanSettlement | None:
        """A settlement of ranges that lie in one lane, or of one range that is the whole lease.

        None if the lease's group was deleted.
        """
        context = context_of(turn, lease)
        if context is None:
            return None
        lane = ranges[0].lane
        if lane is None:
            return cls(turn, context, lease, None, turn.spans("spans_of_lease", lease=lease.no))
        spans: dict[int, Span] = {}
        named = [(leased.lo, leased.hi) for leased in ranges]
        for lo, hi in named if len(named) == 1 else join_near(named, segment_reads.NEAR):
            spans.update((span.hi, span) for span in _spans_around(turn, lane, lease.grp, lo, hi))
        return cls(turn, context, lease, lane, [spans[hi] for hi in sorted(spans)])

    def in_one_span(self, leased: LeasedRange) -> bool:
        """Whether a single span of the lease contains the whole range."""
        spans = self._overlapping(leased)
        return len(spans) == 1 and spans[0].lo <= leased.lo and leased.hi <= spans[0].hi

    def _overlapping(self, leased: LeasedRange) -> list[Span]:
        if leased.lane is None:
            return self._spans.all()
        holder = self._lease.no or None
        return [span for span in self._spans.touching(leased.lane, leased.lo, leased.hi) if span.lease == holder]

    def settle(self, leased: LeasedRange, entry: Settlement) -> Settled:
        """Settle the messages of the range that the lease holds. Returns the answer for the entry."""
        spans = self._overlapping(leased)
        refusal = refusals.refuse(leased, spans, self._turn.now)
        if refusal is not None:
            return self._refused(leased, refusal, entry)
        answer = self._ack(leased, spans) if entry.outcome is Outcome.ACK else self._fail(leased, spans, entry)
        self._end_kind = SETTLED if leased.lane is not None else refusals.whole_end_kind(answer.verdict)
        return answer

    def _refused(self, leased: LeasedRange, verdict: Verdict, entry: Settlement) -> Settled:
        if verdict is not Verdict.ALREADY or entry.outcome is not Outcome.ACK:
            return Settled(verdict)
        if leased.lane is None:
            return Settled(verdict, unacked=refusals.ended_without_ack(leased, (), ()))
        spans = self._spans.touching(leased.lane, leased.lo, leased.hi)
        return Settled(verdict, unacked=refusals.ended_without_ack(leased, spans, self._dead_in(leased.lane, leased)))

    def _dead_in(self, lane: LaneId, leased: LeasedRange) -> list[LaneRange]:
        """Ranges of dead messages: those that this call buried or dropped.

        If a message of the range has a dead letter, the whole range counts.
        """
        dead = [burial.span.range for burial in self._burials.get(lane, ())] + self._dropped
        where = {"lane": lane, "grp": self._lease.grp, "lo": leased.lo, "hi": leased.hi}
        if self._turn.session.row("dead_any", where) is not None:
            dead.append(LaneRange(lane, leased.lo, leased.hi))
        return dead

    def _ack(self, leased: LeasedRange, spans: list[Span]) -> Settled:
        acked = 0
        for span in spans:
            before, piece, after = cut(span, leased.lo, leased.hi)
            size = piece.hi - piece.lo
            cursor = self._cursor(piece)
            cursor.held -= size
            cursor.ack(_ACKED, size, piece.hi - 1, self._turn.wall)
            self._spans.replace(span, [part for part in (before, after) if part is not None])
            acked += size
        self._count(_ACKED.value, acked)
        return Settled(SETTLED_AS[Outcome.ACK], acked, failures=spans[-1].fails)

    def _fail(self, leased: LeasedRange, spans: list[Span], entry: Settlement) -> Settled:
        """Return or bury messages, as their fates say."""
        count = died = failures = due_at = 0
        reason: Reason | None = None
        letters: list[str] = []
        for span in spans:
            before, piece, after = cut(span, leased.lo, leased.hi)
            rest = [part for part in (before, after) if part is not None]
            fate = self._apply(span, piece, rest, entry, letters)
            size = piece.hi - piece.lo
            count, failures, due_at = count + size, fate.failures, fate.due_at
            if fate.state is State.WAITING:
                self._count(SETTLED_AS[entry.outcome].value, size)
            else:
                self._count(fate.state.value, size)
                died += size
                reason = fate.reason if fate.state is State.DEAD else None
        if died < count:
            answer = Settled(SETTLED_AS[entry.outcome], count, dead=died, failures=failures, dead_ids=letters)
            if entry.outcome is Outcome.RETRY:
                answer.retry_in = max(0, due_at - self._turn.now)
                answer.last_failure = last_failure(self._context.policy)
            return answer
        return Settled(Verdict.DEAD, count, reason=reason, dead=died, failures=failures, dead_ids=letters)

    def _apply(self, span: Span, piece: Span, rest: list[Span], entry: Settlement, letters: list[str]) -> Fate:
        """Apply the fate of one piece of a span. `letters` collects the ids of its dead letters."""
        turn, lease = self._turn, self._lease
        cursor = self._cursor(piece)
        if entry.outcome is not Outcome.RELEASE:
            cursor.note_nacked(piece.hi - 1, len(piece), turn.wall)
        fate = _fate(turn, self._context.policy, attempt_of(lease, piece), entry)
        piece.history = dead_letters.add_history(
            piece.history,
            turn.wall,
            entry.outcome.value,
            owner=lease.owner,
            error=entry.error,
            error_type=entry.error_type,
            trace=entry.trace,
        )
        self._spans.replace(span, apply_fate(cursor, piece, rest, fate))
        if fate.state is State.WAITING:
            self._returned = True
        elif fate.state is State.DEAD:
            burial = dead_letters.Burial(piece, fate, entry.error or "", entry.error_type or "", letters)
            self._burials.setdefault(cursor.lane, []).append(burial)
        else:
            self._dropped.append(piece.range)
        return fate

    def _count(self, outcome: str, messages: int) -> None:
        self._counts[outcome] = self._counts.get(outcome, 0) + messages

    def _cursor(self, piece: Span) -> Cursor:
        if piece.lane in self._cursors:
            return self._cursors[piece.lane]
        if self._lane is None or self._lease.exclusivity == "none":
            cursor = cursor_of(self._turn, piece)
        else:
            # One statement also reads the cursors of the other lanes: `close` needs them if the partition opens.
            rows = self._turn.session.rows("cursors_beside", {"lane": self._lane, "grp": self._lease.grp})
            cursors = list(map(engine_cursors.cursor_from, rows))
            cursor = next(cursor for cursor in cursors if cursor.lane == self._lane)
            self._siblings = [cursor for cursor in cursors if cursor.lane != self._lane]
        self._cursors[piece.lane] = cursor
        return cursor

    def close(self) -> None:
        """Write all changes, and end the lease if it holds no more messages."""
        if not self._counts:
            return
        turn, context, lease = self._turn, self._context, self._lease
        for outcome, count in self._counts.items():
            turn.count(context.queue.name, context.group.name, outcome, count, turn.now - lease.made_at)
        if self._dropped:
            dead_letters.note_dropped(turn, lease.grp, self._dropped)
        for lane, burials in self._burials.items():
            dead_letters.bury(turn, context.queue, context.group, self._cursors[lane], burials)
        self._spans.write(turn)
        granted = sum(hi - lo for lane, lo, hi in lease.granted if lane == self._lane)
        emptied = self._lane is None or sum(self._counts.values()) == granted
        changed = self._update_lease()
        ended = leave_lanes(
            turn,
            context,
            lease,
            self._cursors,
            self._end_kind,
            emptied=emptied,
            returned=self._returned,
            siblings=self._siblings,
        )
        if changed and not ended:
            turn.save_lease(lease)

    def _update_lease(self) -> bool:
        """Record returned and dropped messages on the lease. True if that changed the lease."""
        lease = self._lease
        if not lease.no or not (self._dropped or (self._returned and not lease.returned)):
            return False
        self._turn.own_lease(lease)
        lease.returned = int(self._returned or lease.returned)
        lease.dropped = merge_ranges(lease.dropped + self._dropped, engine_cursors.MOST_LOST_RANGES)
        return True


def cursor_of(turn: Turn, span: Span) -> Cursor:
    cursor = turn.cursor(span.lane, span.grp)
    assert cursor is not None
    return cursor


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


def apply_fate(cursor: Cursor, piece: Span, rest: list[Span], fate: Fate) -> list[Span]:
    """Return a piece to its lane or count it as finished, and give the spans that replace the old one.

    The caller writes the dead letters.
    """
    if fate.state is State.WAITING:
        piece.lease, piece.owner = None, None
        piece.fails, piece.due_at, piece.probation = fate.failures, fate.due_at, int(fate.probation)
        return [piece, *rest]
    cursor.held -= len(piece)
    cursor.finish(fate.state, len(piece))
    return rest


def leave_lanes(
    turn: Turn,
    context: GroupContext,
    lease: Lease,
    cursors: dict[int, Cursor],
    kind: str = SETTLED,
    *,
    emptied: bool = False,
    returned: bool = True,
    siblings: list[Cursor] | None = None,
) -> bool:
    """Free the lanes that the lease has finished. End the lease when it holds no more messages, and return True.

    `emptied` says that the lease finished these lanes, which saves a query. `returned=False` says that no message came
    back. `siblings` are the cursors of the other lanes of the partition, if the caller has read them.
    """
    finished = 0
    for lane, cursor in cursors.items():
        if lease.no and (emptied or _holds_nothing(turn, lease, lane)):
            finished += 1
            leave_lane(cursor, lease)
        engine_cursors.refresh(turn, cursor, context.policy, context.queue.name, returned=returned)
    if finished and lease.exclusivity != "none":
        engine_cursors.open_siblings(turn, list(cursors.values()), context.policy, context.queue.name, siblings)
    return finished == len(cursors) and _end_if_empty(turn, lease, cursors, kind)


def _holds_nothing(turn: Turn, lease: Lease, lane: int) -> bool:
    return turn.session.row("span_held_in_lane", {"lease": lease.no, "lane": lane}) is None


def _end_if_empty(turn: Turn, lease: Lease, left: dict[int, Cursor], kind: str) -> bool:
    """End a lease that has left these lanes, unless it holds messages in others. True if the lease has ended."""
    if kind in (SETTLED, RETURNED, BURIED):
        turn.own_lease(lease)
        if lease.ended_at is not None:
            return True
    elsewhere = any(lane not in left for lane, _, _ in lease.granted)
    if elsewhere and turn.session.row("span_held", {"lease": lease.no}) is not None:
        return False
    turn.end_lease(lease, kind)
    return True


def leave_lane(cursor: Cursor, lease: Lease) -> None:
    """Note on the cursor that a lease holds no more messages of the lane."""
    cursor.leased -= 1
    if lease.exclusivity != "none":
        cursor.exclusive -= 1
        if cursor.exclusive == 0:
            cursor.exclusive_owner = None


class SpanEdit:
    """Edits disjoint spans in memory. Keeps them sorted by lane and end, which is also their stored key."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = list(spans)
        self._keys = list(map(_key, spans))
        self._stored = dict(zip(self._keys, spans, strict=True))

    def all(self) -> list[Span]:
        return list(self._spans)

    def touching(self, lane: LaneId, lo: int, hi: int) -> list[Span]:
        """Spans that overlap [lo, hi)."""
        at = end = bisect_right(self._keys, (lane, lo))
        while end < len(self._spans) and self._spans[end].lane == lane and self._spans[end].lo < hi:
            end += 1
        return self._spans[at:end]

    def replace(self, old: Span, new: list[Span]) -> None:
        """Replace a span by its remaining parts."""
        at = bisect_left(self._keys, _key(old))
        new = sorted(new, key=_key)
        self._spans[at : at + 1] = new
        self._keys[at : at + 1] = map(_key, new)

    def write(self, turn: Turn) -> None:
        """Write the difference to the stored spans."""
        now = dict(zip(self._keys, self._spans, strict=True))
        removed = [span for key, span in self._stored.items() if key not in now]
        changed = [span for key, span in now.items() if key in self._stored and self._stored[key] is not span]
        new = [span for key, span in now.items() if key not in self._stored]
        if removed:
            turn.session.many("span_delete", [{"lane": s.lane, "grp": s.grp, "hi": s.hi} for s in removed])
        if changed:
            turn.session.many("span_update", map(span_params, changed))
        if new:
            turn.session.many("span_insert", map(span_params, new))


def _key(span: Span) -> tuple[int, int]:
    return span.lane, span.hi
