"""Lanes, cursors, spans and leases: a few rows that hold any number of messages."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ackwise.core.ids import GroupId, LaneId, LeaseNo, Micros
from ackwise.core.lane_range import BEYOND, LaneRange, covers
from ackwise.core.lifecycle import Guard, LifecycleEvent, State, target, targets

SETTLED, RETURNED, BURIED = "settled", "returned", "buried"
"""How settlements end a lease: message by message or by an ack, all returned at once, all dead at once."""
_DUE = target(State.WAITING, LifecycleEvent.DUE)
# `Cursor.restart` moves every message by its position alone.
assert targets(LifecycleEvent.SEEK, Guard.AHEAD) == {State.READY}
assert targets(LifecycleEvent.SEEK, Guard.BEHIND) == {State.SKIPPED}


class Lane(msgspec.Struct):
    """One priority of a partition. It holds messages [start, head)."""

    id: LaneId
    part: int
    queue: int
    prio: int
    head: int
    start: int


class Cursor(msgspec.Struct):
    """A group's position in a lane. next - first = acked + dead + skipped + expired + held."""

    lane: LaneId
    grp: GroupId
    part: int
    prio: int
    epoch: int
    first: int
    next: int
    held: int
    acked: int
    dead: int
    skipped: int
    expired: int
    leased: int
    exclusive: int
    exclusive_owner: str | None
    ready_at: int | None
    head: int
    start: int
    floor: int
    """Seq at which the epoch started. Below it the group holds only redriven messages of earlier epochs."""
    settled_at: Micros | None = None
    """When the group last acked a message of this lane."""
    last_seq: int | None = None
    """The message that the group acked or nacked last: the highest seq, if there are several at one instant."""
    last_at: Micros | None = None
    """When the group acked or nacked that message."""
    nacked: int = 0
    """Number of failures that the group reported in this lane."""
    largest: int = 0
    """Bytes of the largest message of the lane."""

    def finish(self, state: State, count: int) -> None:
        """Count messages that reached a final state."""
        if state is State.ACKED:
            self.acked += count
        elif state is State.DEAD:
            self.dead += count
        elif state is State.EXPIRED:
            self.expired += count
        else:
            raise ValueError(f"{state.value} is not a final state")

    def ack(self, state: State, count: int, last: int, now: Micros) -> None:
        """Count messages whose ack leads to a final state, and record the newest ack."""
        self.finish(state, count)
        self.last_seq = last if self.last_at != now else max(last, self.last_seq or 0)
        self.settled_at = self.last_at = now

    def note_nacked(self, last: int, count: int, now: Micros) -> None:
        """Record the newest reported failure."""
        self.last_seq = last if self.last_at != now else max(last, self.last_seq or 0)
        self.last_at = now
        self.nacked += count

    def within(self, seq: int) -> int:
        """The nearest seq of the lane."""
        return min(max(seq, self.start), self.head)

    def restart(self, seq: int) -> None:
        """Start a new epoch: messages before `seq` are skipped, the others are ready."""
        self.epoch += 1
        self.first = self.next = self.floor = self.within(seq)
        self.held = self.acked = self.dead = self.skipped = self.expired = self.leased = self.exclusive = 0
        self.exclusive_owner = None
        self.last_seq = self.last_at = None
        self.nacked = 0

    def balanced(self) -> bool:
        """Whether the counts of this cursor add up (promise 1)."""
        return self.next - self.first == self.acked + self.dead + self.skipped + self.expired + self.held


class Span(msgspec.Struct):
    """Messages [lo, hi) of a lane that were delivered to a group and are not finished."""

    lane: LaneId
    grp: GroupId
    lo: int
    hi: int
    lease: LeaseNo | None = None
    fails: int = 0
    delivs: int = 0
    due_at: int = 0
    probation: int = 0
    history: str = ""
    owner: str | None = None

    def __len__(self) -> int:
        return self.hi - self.lo

    @property
    def range(self) -> LaneRange:
        return LaneRange(self.lane, self.lo, self.hi)

    @property
    def bypassed(self) -> bool:
        """Whether a claim of named messages bypassed these messages, which are unread.

        Only a bypassed span has `due_at` 0. A span that returned from a delivery has a later `due_at`.
        """
        return self.lease is None and self.due_at == 0

    def state(self, now: int) -> State:
        """State of the messages."""
        if self.lease is not None:
            return State.LEASED
        return _DUE if self.due_at <= now else State.WAITING

    def part(self, lo: int, hi: int) -> Span:
        """A copy that covers [lo, hi) only."""
        return msgspec.structs.replace(self, lo=lo, hi=hi)


class Lease(msgspec.Struct):
    """One claim's hold on messages. `no` only rises, so it fences. `tag` protects against guessed or foreign ids."""

    no: LeaseNo
    tag: int
    queue: int
    grp: GroupId
    owner: str
    instance: str
    exclusivity: str
    bulk: int
    deadline: int
    made_at: Micros
    granted: list[LaneRange]
    key: str | None = None
    fingerprint: str | None = None
    ended_at: Micros | None = None
    end_kind: str | None = None
    lost: list[LaneRange] = msgspec.field(default_factory=list)
    yields: int = 0
    """Whether a failure releases the messages that the lease still holds in the same partition."""
    returned: int = 0
    """Whether a settlement of this lease returned a message."""
    dropped: list[LaneRange] = msgspec.field(default_factory=list)
    """Messages that died under the lease in a queue without dead letters. No other row records them."""

    def live(self, now: int) -> bool:
        """Whether the lease holds its messages at `now`. At its deadline it has expired."""
        return self.ended_at is None and self.deadline > now

    @property
    def alone(self) -> bool:
        """Whether the lease was granted exactly one message."""
        return sum(hi - lo for _, lo, hi in self.granted) == 1

    def was_granted(self, lane: LaneId, seq: int) -> bool:
        return covers(self.granted, lane, seq)

    def was_lost(self, lane: LaneId, seq: int) -> bool:
        return covers(self.lost, lane, seq)

    def was_dropped(self, lane: LaneId, seq: int) -> bool:
        return covers(self.dropped, lane, seq)


class LeasedRange(msgspec.Struct, frozen=True):
    """Messages [lo, hi) of a lane under a lease. `lane` None means all messages that the lease holds.

    `whole` refuses a settlement unless the lease holds every message of the range. `late` allows it for a lease that
    has expired, until a turn ends the lease.
    """

    lease: Lease
    lane: LaneId | None
    lo: int = 0
    hi: int = BEYOND
    whole: bool = False
    late: bool = False

    def overlaps(self, ranges: Iterable[LaneRange]) -> bool:
        """Whether any of the ranges contains a message of this one."""
        return any(lane == self.lane and lo < self.hi and self.lo < hi for lane, lo, hi in ranges)

    def part(self, lo: int, hi: int) -> LeasedRange:
        """Messages [lo, hi) of the same lane and lease."""
        return LeasedRange(self.lease, self.lane, lo, hi, late=self.late)


NumberedRange = tuple[int, LeasedRange]
"""The number of an entry in its call, and the range that the entry names."""


def cut(span: Span, lo: int, hi: int) -> tuple[Span | None, Span, Span | None]:
    """Cut a span into the parts before, inside and after [lo, hi)."""
    lo, hi = max(lo, span.lo), min(hi, span.hi)
    before = span.part(span.lo, lo) if lo > span.lo else None
    after = span.part(hi, span.hi) if hi < span.hi else None
    return before, span.part(lo, hi), after
