"""Lanes, cursors, spans and leases: how any number of messages is held in a few rows."""

from __future__ import annotations

from bisect import bisect_right

import msgspec

_BEYOND = 1 << 62


class Lane(msgspec.Struct):
    """One priority of a partition: seqs [start, head) exist."""

    id: int
    part: int
    queue: int
    prio: int
    head: int
    start: int


class Cursor(msgspec.Struct):
    """A group's place in a lane. next - first = acked + dead + skipped + expired + held."""

    lane: int
    grp: int
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
    """Where the epoch began. Below it only what was redriven from an earlier epoch is held; the rest was skipped."""
    settled_at: int | None = None
    """When the group last acked something here."""
    last_seq: int | None = None
    """The message that the group acked or nacked last."""
    last_at: int | None = None
    """When the group acked or nacked that message."""
    nacked: int = 0
    """How many failures the group reported in this lane."""
    largest: int = 0
    """No message of the lane has more bytes."""

    def note_acked(self, last: int, now: int) -> None:
        """Record the newest ack."""
        self.settled_at = self.last_at = now
        self.last_seq = last

    def note_nacked(self, last: int, count: int, now: int) -> None:
        """Record the newest reported failure."""
        self.last_at = now
        self.last_seq = last
        self.nacked += count

    def balanced(self) -> bool:
        """Promise 1, for this cursor."""
        return self.next - self.first == self.acked + self.dead + self.skipped + self.expired + self.held


class Span(msgspec.Struct):
    """Messages [lo, hi) of a lane that a group was handed and has not finished."""

    lane: int
    grp: int
    lo: int
    hi: int
    lease: int | None = None
    fails: int = 0
    delivs: int = 0
    due_at: int = 0
    last_owner: str | None = None
    probation: int = 0
    history: str = ""
    owner: str | None = None

    def __len__(self) -> int:
        return self.hi - self.lo

    def part(self, lo: int, hi: int) -> Span:
        """A copy that covers [lo, hi) only."""
        return msgspec.structs.replace(self, lo=lo, hi=hi)


class Lease(msgspec.Struct):
    """One claim. `no` only ever rises, so it fences; `tag` makes guessed or foreign ids miss."""

    no: int
    tag: int
    queue: int
    grp: int
    owner: str
    instance: str
    exclusivity: str
    bulk: int
    deadline: int
    made_at: int
    granted: list[tuple[int, int, int]]
    key: str | None = None
    fingerprint: str | None = None
    ended_at: int | None = None
    end_kind: str | None = None
    lost: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    yields: int = 0
    """Whether a failure gives back what the lease still holds of that partition."""
    returned: int = 0
    """Whether something of it went back because it said so."""
    dropped: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    """What died under it where no dead letters are kept, which nothing else tells."""

    def live(self, now: int) -> bool:
        """Expired at equality: a lease is held only before its deadline."""
        return self.ended_at is None and self.deadline > now

    @property
    def alone(self) -> bool:
        """Whether it was granted exactly one message."""
        return sum(hi - lo for _, lo, hi in self.granted) == 1

    def was_granted(self, lane: int, seq: int) -> bool:
        return _inside(self.granted, lane, seq)

    def was_lost(self, lane: int, seq: int) -> bool:
        return _inside(self.lost, lane, seq)

    def was_dropped(self, lane: int, seq: int) -> bool:
        return _inside(self.dropped, lane, seq)


def _inside(ranges: list[tuple[int, int, int]], lane: int, seq: int) -> bool:
    """Whether sorted, disjoint (lane, lo, hi) ranges cover a message."""
    at = bisect_right(ranges, (lane, seq, _BEYOND)) - 1
    return at >= 0 and ranges[at][0] == lane and ranges[at][1] <= seq < ranges[at][2]


def cut(span: Span, lo: int, hi: int) -> tuple[Span | None, Span, Span | None]:
    """`span` cut into what is before [lo, hi), the part inside it, and what is after."""
    lo, hi = max(lo, span.lo), min(hi, span.hi)
    before = span.part(span.lo, lo) if lo > span.lo else None
    after = span.part(hi, span.hi) if hi < span.hi else None
    return before, span.part(lo, hi), after


def merge_ranges(ranges: list[tuple[int, int, int]], most: int) -> list[tuple[int, int, int]]:
    """(lane, lo, hi) ranges joined where they touch; beyond `most` per list, gaps are covered, never holes made."""
    joined: list[tuple[int, int, int]] = []
    for lane, lo, hi in sorted(ranges):
        if joined and joined[-1][0] == lane and (lo <= joined[-1][2] or len(joined) >= most):
            joined[-1] = (lane, joined[-1][1], max(hi, joined[-1][2]))
        else:
            joined.append((lane, lo, hi))
    return joined


def joined(ranges: list[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    """Ranges [lo, hi) in order, those as one that are no further apart than `gap`."""
    found: list[tuple[int, int]] = []
    for lo, hi in sorted(ranges):
        if found and lo - found[-1][1] <= gap:
            found[-1] = (found[-1][0], max(hi, found[-1][1]))
        else:
            found.append((lo, hi))
    return found
