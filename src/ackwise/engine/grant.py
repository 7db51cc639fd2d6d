"""What a claim is granted: its byte budget, its lease and spans, its answer."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ackwise.core import ids, validation
from ackwise.core.answers import Claimed, Grant
from ackwise.core.commands import Claim
from ackwise.core.ids import LeaseNo
from ackwise.core.lane_range import LaneRange, merge_ranges
from ackwise.core.lane_selection import Take
from ackwise.core.lifecycle import LifecycleEvent, State, target
from ackwise.core.policy import Exclusivity, QueuePolicy
from ackwise.core.spans import Cursor, Lease, Span
from ackwise.engine import catalog, segment_reads
from ackwise.engine import cursors as engine_cursors
from ackwise.engine.catalog import GroupRow, QueueRow
from ackwise.engine.named_claim import bypass
from ackwise.engine.ports import Session
from ackwise.engine.turn import Turn

MOST_PREFETCHED = 64 << 20
"""Bytes that one turn reads for claims with auto-ack. Above this bound, each such claim takes one message."""
SIZE_PAGE = 500
"""Segments whose lengths one statement reads."""
_CLAIMED = target(State.READY, LifecycleEvent.CLAIM)
_AUTO_ACKED = target(State.READY, LifecycleEvent.AUTO_ACK)


def byte_budget(turn: Turn, command: Claim) -> ByteBudget:
    """Byte budget of a claim. Claims with the same `together` number share one."""
    if command.together in turn.byte_budgets:
        return turn.byte_budgets[command.together]
    most = validation.DEFAULT_CLAIM_BYTES if command.most_bytes is None else command.most_bytes
    if command.auto_ack:
        # The turn reads the messages of claims with auto-ack itself. All such claims of a turn share its memory.
        most = max(1, min(most, MOST_PREFETCHED - turn.prefetched))
    budget = ByteBudget(turn.session, most)
    if command.together:
        turn.byte_budgets[command.together] = budget
    return budget


class ByteBudget:
    """Byte budget of a claim, from the stored lengths of segments. Never reads payloads.

    A lane knows the size of its largest message. While the number of messages times this size fits the budget, the
    estimate is enough. Otherwise the budget reads the real lengths from the database.
    """

    def __init__(self, session: Session, most: int) -> None:
        self._session, self._most = session, most
        self.taken = 0
        """Upper bound of the bytes taken so far."""
        self._empty = True
        self._estimated: list[tuple[Cursor, list[Take], int]] = []

    @property
    def full(self) -> bool:
        """Whether the claim must stop."""
        return self.taken >= self._most and not self._empty

    def add(self, size: int) -> None:
        """Count the bytes that a repeated claim holds already."""
        self.taken += size
        self._empty = False

    def fit(self, cursor: Cursor, takes: list[Take]) -> list[Take]:
        """The first part of `takes` that fits. The first message of a claim always fits."""
        estimate = sum(take.hi - take.lo for take in takes) * cursor.largest
        if self.taken + estimate > self._most and self._estimated:
            self._weigh_estimated()
        if self.taken + estimate <= self._most:
            self._estimated.append((cursor, takes, estimate))
            self.taken += estimate
            self._empty = False
            return takes
        fitting: list[Take] = []
        for take in takes:
            fit = self._cut(cursor, take)
            if fit is not None:
                fitting.append(fit)
            if fit != take:
                break
        return fitting

    def _weigh_estimated(self) -> None:
        for cursor, takes, estimate in self._estimated:
            exact = sum(size for take in takes for *_, size in self._pieces(cursor, take))
            self.taken += min(0, exact - estimate)
        self._estimated.clear()

    def _cut(self, cursor: Cursor, take: Take) -> Take | None:
        """The first part of `take` that fits. The budget is full if that is not all of it."""
        for lo, hi, size in self._pieces(cursor, take):
            if self.taken + size > self._most:
                end = lo + min(hi - lo - 1, max(0, self._most - self.taken) // max(1, cursor.largest))
                if self._empty and end == lo:
                    self.taken, end = self.taken + min(size, cursor.largest), lo + 1
                self.taken, self._empty = max(self._most, self.taken), False
                return Take(take.lo, end, take.span) if end > take.lo else None
            self.taken += size
            self._empty = False
        return take

    def _pieces(self, cursor: Cursor, take: Take) -> Iterator[tuple[int, int, int]]:
        """[lo, hi) and bytes of `take` in each segment. For a part of a segment the bytes are an upper bound."""
        lo = take.lo
        while lo < take.hi:
            page = segment_reads.sizes(self._session, cursor.lane, lo, take.hi, SIZE_PAGE)
            for first, last, size in page:
                lo, hi = max(lo, first), min(take.hi, last + 1)
                yield lo, hi, min(size, (hi - lo) * cursor.largest)
                lo = hi
            if len(page) < SIZE_PAGE:
                return


class GrantWriter:
    """Writes the rows of one claim on one queue."""

    def __init__(self, turn: Turn, command: Claim, queue: QueueRow, group: GroupRow, policy: QueuePolicy) -> None:
        self.turn, self.command, self.queue, self.group, self.policy = turn, command, queue, group, policy
        self.session = turn.session
        self.no = LeaseNo(0)
        self.owner = command.owner or ""
        self.state = _AUTO_ACKED if command.auto_ack else _CLAIMED
        """State of the messages after the claim."""

    def grant(self, picked: list[tuple[Cursor, list[Take]]], exclusivity: Exclusivity, size: int) -> Claimed:
        """Write the lease and the spans of a claim. `size` is an upper bound of its bytes."""
        granted = [LaneRange(cursor.lane, take.lo, take.hi) for cursor, takes in picked for take in takes]
        leased = self.state is State.LEASED
        if leased:
            self._add_lease(granted, exclusivity, self.owner)
        handed: list[tuple[Cursor, Span]] = []
        for cursor, takes in picked:
            for take in takes:
                handed.append((cursor, self._deliver(cursor, take)))
            if leased:
                self._hold(cursor, exclusivity)
            cursor.ready_at = None if cursor.exclusive else self._ready_at(cursor, takes)
            self.turn.save_cursor(cursor)
        if not leased:
            finished = sum(len(span) for _, span in handed)
            self.turn.count(self.queue.name, self.group.name, self.state.value, finished, 0)
        return self._answer(handed, size)

    def _hold(self, cursor: Cursor, exclusivity: Exclusivity) -> None:
        """Count the lease in a lane."""
        cursor.leased += 1
        if exclusivity != "none":
            cursor.exclusive += 1
            cursor.exclusive_owner = self.owner

    def _ready_at(self, cursor: Cursor, takes: list[Take]) -> int | None:
        """When the next claim can take messages of a lane that no lease holds exclusively."""
        returned = self.state is not State.LEASED or cursor.held > sum(take.hi - take.lo for take in takes)
        return engine_cursors.ready_at(self.turn, cursor, self.policy, returned=returned)

    def take_over(self, lease: Lease, handed: list[tuple[Cursor, Span]], size: int) -> Claimed:
        """Move the messages of a lease to a new lease with the same key, and end the old lease."""
        ranges = [span.range for _, span in handed]
        self.session.run("lease_unkey", {"no": lease.no})
        lease.key = None
        lease.lost = merge_ranges(lease.lost + ranges, engine_cursors.MOST_LOST_RANGES)
        self.turn.end_lease(lease, "superseded")
        self._add_lease(ranges, lease.exclusivity, lease.owner)
        for _, span in handed:
            span.lease, span.delivs = self.no, span.delivs + 1
            self.turn.replace_span(span, [span])
        return self._answer(handed, size)

    def _add_lease(self, granted: list[LaneRange], exclusivity: str, owner: str) -> None:
        """Add the claim's lease. All partitions of the claim are locked by now."""
        self.no = self.turn.next_lease_no()
        self.owner = owner or ids.default_owner(self.no)
        lease_for = self.command.lease or round(self.policy.lease_seconds * validation.MICROS)
        lease = Lease(
            no=self.no,
            tag=self.turn.dice.getrandbits(32),
            queue=self.queue.id,
            grp=self.group.id,
            owner=self.owner,
            instance=self.turn.instance,
            exclusivity=exclusivity,
            bulk=int(self.command.bulk),
            yields=int(self.command.yields),
            deadline=self.turn.now + lease_for,
            made_at=self.turn.now,
            granted=granted if len(granted) == 1 else merge_ranges(granted, 1 << 30),
            key=self.command.key,
            fingerprint=fingerprint(self.command, self.queue, self.group) if self.command.key is not None else None,
        )
        self.turn.add_lease(lease)

    def _deliver(self, cursor: Cursor, take: Take) -> Span:
        """Put messages under the lease, or ack them with auto-ack."""
        size = take.hi - take.lo
        if take.span is None and take.lo > cursor.next:
            bypass(self.turn, cursor, take.lo)
        base = take.span or Span(cursor.lane, cursor.grp, take.lo, take.hi)
        handed = msgspec.structs.replace(base, lo=take.lo, hi=take.hi, lease=self.no, delivs=base.delivs + 1, due_at=0)
        rest = [take.span.part(take.hi, take.span.hi)] if take.span is not None and take.hi < take.span.hi else []
        if self.state is not State.LEASED:
            cursor.ack(self.state, size, take.hi - 1, self.turn.wall)
            if take.span is not None:
                cursor.held -= size
                self.turn.replace_span(take.span, rest)
        elif take.span is not None:
            self.turn.replace_span(take.span, [handed, *rest])
        else:
            cursor.held += size
            self.turn.add_span(handed)
        if take.span is None:
            cursor.next = take.hi
        return handed

    def _answer(self, handed: list[tuple[Cursor, Span]], size: int) -> Claimed:
        names = catalog.part_names(self.session, {cursor.part for cursor, _ in handed})
        grants = [
            Grant(
                self.queue.name, names[cursor.part][0], names[cursor.part][1], span.lane, cursor.prio, span.lo, span.hi,
                span.fails, span.delivs,
            )
            for cursor, span in handed
        ]  # fmt: skip
        lease = self.turn.lease(self.no) if self.no else None
        if lease is None:
            read = [segment_reads.segments(self.session, g.lane, g.lo, g.hi) for g in grants]
            self.turn.prefetched += size
            return Claimed(self.group.name, grants, prefetched=read, size=size)
        return Claimed(self.group.name, grants, lease.no, lease.tag, lease.deadline, size=size)


def fingerprint(command: Claim, queue: QueueRow, group: GroupRow) -> str:
    """Queue, group, filters and owner of a claim as text. A repeated claim key must have the same."""
    mark = (queue.name, group.name, command.partitions, command.priorities)
    return msgspec.json.encode(mark if command.owner is None else (*mark, command.owner)).decode()
