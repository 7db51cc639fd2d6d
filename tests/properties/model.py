"""The reference model: every message of every group on its own, without spans, segments or indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ackwise.core.policy import QueuePolicy
from ackwise.core.validation import MICROS

LaneKey = tuple[str, int]
DONE = ("acked", "dead", "expired", "skipped")


@dataclass
class Stored:
    """A message in a lane."""

    body: bytes
    txid: str
    created_at: int


@dataclass
class Cell:
    """How one message stands for one group, once handed out."""

    state: str
    failures: int = 0
    deliveries: int = 0
    due: int = 0
    probation: bool = False
    lease: int | None = None


@dataclass
class View:
    """One group's place in one lane."""

    first: int
    next: int
    epoch: int = 0
    cells: dict[int, Cell] = field(default_factory=dict)

    def count(self, state: str) -> int:
        return sum(cell.state == state for cell in self.cells.values())


@dataclass
class Lease:
    no: int
    lease_id: str
    group: str
    owner: str
    exclusivity: str
    deadline: int
    bulk: bool
    granted: set[tuple[LaneKey, int]]
    key: str | None = None
    filter: object = None
    lost: set[tuple[LaneKey, int]] = field(default_factory=set)
    ended: str | None = None
    """How it ended."""
    returned: bool = False
    """Something of it was settled so that it comes again."""
    dropped: set[tuple[LaneKey, int]] = field(default_factory=set)
    """What failed for good, in a queue that keeps no dead letters."""
    gone: bool = False
    """Its queue was deleted."""


@dataclass
class Waiting:
    """A scheduled message."""

    due: int
    order: int
    lane: LaneKey
    body: bytes
    txid: str


@dataclass
class Model:
    """Everything about the one queue that the promises speak of."""

    policy: QueuePolicy
    lanes: dict[LaneKey, list[Stored]] = field(default_factory=dict)
    starts: dict[LaneKey, int] = field(default_factory=dict)
    views: dict[tuple[LaneKey, str], View] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    leases: dict[int, Lease] = field(default_factory=dict)
    scheduled: list[Waiting] = field(default_factory=list)
    remembered: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """(partition, transaction id) to when it is certainly, and when it may be, remembered until."""
    dead: dict[tuple[LaneKey, int, str], int] = field(default_factory=dict)
    """(lane, seq, group) of a dead letter to the epoch in which it died."""

    # pushing

    def add_lane(self, lane: LaneKey) -> None:
        if lane not in self.lanes:
            self.lanes[lane], self.starts[lane] = [], 0
            for group in self.groups:
                self.views[lane, group] = View(0, 0)

    def append(self, lane: LaneKey, body: bytes, txid: str, now: int) -> int:
        self.add_lane(lane)
        self.lanes[lane].append(Stored(body, txid, now))
        return len(self.lanes[lane]) - 1

    def remember(self, lane: LaneKey, txid: str, now: int, *, surely: bool = True) -> None:
        window = round(self.policy.dedupe_seconds * MICROS)
        until = now + window if window else 1 << 62
        before = self.remembered.get((lane[0], txid), (-1, -1))
        self.remembered[lane[0], txid] = max(before[0], until if surely else -1), max(before[1], until)

    def promote(self, now: int) -> None:
        due = sorted((w for w in self.scheduled if w.due <= now), key=lambda w: (w.due, w.order))
        for one in due:
            self.scheduled.remove(one)
            self.append(one.lane, one.body, one.txid, now)
            self.remember(one.lane, one.txid, now, surely=False)

    def forget(self, now: int) -> None:
        """Sweeps drop what is out of its window, also for a clock that is set back afterwards."""
        for key, (surely, maybe) in self.remembered.items():
            self.remembered[key] = (surely if surely > now else -1), maybe

    # groups

    def ensure_group(self, group: str) -> None:
        if group not in self.groups:
            self.groups.add(group)
            for lane, start in self.starts.items():
                self.views[lane, group] = View(start, start)

    def lanes_of(self, group: str) -> Iterator[tuple[LaneKey, View]]:
        for (lane, name), view in self.views.items():
            if name == group:
                yield lane, view

    def void(self) -> None:
        """The queue is gone, and every lease with it."""
        for lease in self.leases.values():
            lease.ended, lease.gone = lease.ended or "void", True

    # leases

    def held_by(self, lease: Lease) -> list[tuple[LaneKey, int, Cell]]:
        return [
            (lane, seq, cell)
            for lane, view in self.lanes_of(lease.group)
            for seq, cell in sorted(view.cells.items())
            if cell.state == "leased" and cell.lease == lease.no
        ]

    def live(self, group: str) -> list[Lease]:
        return [lease for lease in self.leases.values() if lease.group == group and not lease.ended]

    def end_if_empty(self, lease: Lease, how: str) -> None:
        if not lease.ended and not self.held_by(lease):
            lease.ended = how

    def expire(self, now: int) -> None:
        for lease in list(self.leases.values()):
            if not lease.ended and lease.deadline <= now:
                self.lose(lease, now, "expired")

    def lose(self, lease: Lease, now: int, how: str) -> None:
        """What it holds goes back with a failure."""
        for lane, seq, cell in self.held_by(lease):
            lease.lost.add((lane, seq))
            self.fail_by_expiry(lease, lane, seq, cell, now)
        lease.ended = how

    def fail_by_expiry(self, lease: Lease, lane: LaneKey, seq: int, cell: Cell, now: int) -> None:
        cell.lease = None
        cell.failures += int(self.policy.expiry_counts)
        at_limit = self.policy.expiry_counts and self.final(cell.failures)
        if self.spent(cell) or (at_limit and len(lease.granted) == 1 and not lease.bulk):
            self.bury(lease.group, lane, seq, cell)
        else:
            cell.state, cell.due = "waiting", now
            cell.probation = cell.probation or at_limit

    # the limits, said once more in other words

    def final(self, failures: int) -> bool:
        limit = self.policy.retry_limit
        if limit is None:
            return False
        return failures > limit if self.policy.retry_counting == "retries" else failures >= (limit or 1)

    def spent(self, cell: Cell) -> bool:
        limit = self.policy.delivery_limit
        if limit == "auto":
            limit = max(20, 2 * (self.policy.retry_limit or 0))
        return limit is not None and cell.deliveries >= limit

    def bury(self, group: str, lane: LaneKey, seq: int, cell: Cell) -> None:
        cell.lease = None
        if self.policy.dead_letters:
            cell.state = "dead"
            self.dead[lane, seq, group] = self.views[lane, group].epoch
        else:
            cell.state = "expired"

    # settling

    def settle_one(self, lease: Lease, lane: LaneKey, seq: int, outcome: str, delay: int | None, now: int) -> str:
        """The verdict for one message of a lease, and what it does."""
        if (lane, seq) not in lease.granted:
            return "unknown"
        if lease.gone:
            return "stale"
        cell = self.views[lane, lease.group].cells.get(seq)
        if cell is None or cell.state != "leased" or cell.lease != lease.no:
            return "stale" if (lane, seq) in lease.lost else "already"
        if lease.deadline <= now:
            return "stale"
        verdict = self._apply(lease, lane, seq, cell, outcome, delay, now)
        self.end_if_empty(lease, "settled")
        return verdict

    def settle_lease(self, lease: Lease, outcome: str, delay: int | None, now: int) -> set[str]:
        """The verdicts that may be answered for a whole lease."""
        if lease.gone:
            return {"stale"}
        held = self.held_by(lease)
        if not held:
            return {"stale"} if lease.lost else {"already"}
        if lease.deadline <= now:
            return {"stale"}
        verdicts = {self._apply(lease, lane, seq, cell, outcome, delay, now) for lane, seq, cell in held}
        self.end_if_empty(lease, "settled" if outcome == "ack" else "buried" if verdicts == {"dead"} else "returned")
        return verdicts

    def ended_by_settling(self, lease: Lease) -> bool:
        """Message by message, or all of it at once for good."""
        return lease.ended in ("settled", "buried") and not lease.lost

    def is_unacked(self, lease: Lease, lane: LaneKey, seq: int) -> bool:
        """Whether what the lease has settled comes again, or is dead or dropped."""
        if (lane, seq) in lease.dropped:
            return True
        cell = self.views[lane, lease.group].cells.get(seq)
        if cell is None or cell.state != "dead":
            return cell is not None and cell.state in ("waiting", "leased")
        return self.dead.get((lane, seq, lease.group)) == self.views[lane, lease.group].epoch

    def settle_range(
        self, lease: Lease, lane: LaneKey, lo: int, hi: int, outcome: str, delay: int | None, now: int
    ) -> tuple[set[str], int]:
        """The verdicts that may be answered for [lo, hi) of a lane, and how many messages it settles."""
        if lease.gone:
            return {"stale"}, 0
        held = [(seq, cell) for at, seq, cell in self.held_by(lease) if at == lane and lo <= seq < hi]
        if held and lease.deadline > now:
            verdicts = {self._apply(lease, lane, seq, cell, outcome, delay, now) for seq, cell in held}
            self.end_if_empty(lease, "settled")
            return verdicts, len(held)
        lost = held or any(at == lane and lo <= seq < hi for at, seq in lease.lost)
        return {"stale" if lost else "already"}, 0

    def _apply(
        self, lease: Lease, lane: LaneKey, seq: int, cell: Cell, outcome: str, delay: int | None, now: int
    ) -> str:
        verdict = self._outcome(lease.group, lane, seq, cell, outcome, delay, now)
        lease.returned = lease.returned or verdict in ("released", "retried")
        if cell.state == "expired":
            lease.dropped.add((lane, seq))
        return verdict

    def _outcome(
        self, group: str, lane: LaneKey, seq: int, cell: Cell, outcome: str, delay: int | None, now: int
    ) -> str:
        cell.lease = None
        match outcome:
            case "ack":
                cell.state = "acked"
                return "acked"
            case "release":
                cell.state, cell.due = "waiting", now
                cell.probation = cell.probation or self.spent(cell)
                return "released"
            case "retry":
                cell.failures += 1
                if not self.final(cell.failures) and not self.spent(cell):
                    cell.state, cell.due = "waiting", now + (delay or 0)
                    return "retried"
        self.bury(group, lane, seq, cell)
        return "dead"

    # moving

    def seek(self, group: str, targets: dict[LaneKey, int]) -> None:
        for lane, target in targets.items():
            view = self.views[lane, group]
            for seq, cell in view.cells.items():
                if cell.state == "leased" and cell.lease is not None:
                    self.leases[cell.lease].lost.add((lane, seq))
            at = min(max(target, self.starts[lane]), len(self.lanes[lane]))
            self.views[lane, group] = View(at, at, view.epoch + 1)
        for lease in self.live(group):
            self.end_if_empty(lease, "seek")

    def moved(self, before: Model, group: str) -> tuple[int, int]:
        """Messages that a group gets again since an earlier state, and messages that it skips."""
        then, now = (set(model.unfinished(group)) for model in (before, self))
        return len(now - then), len(then - now)

    def unfinished(self, group: str) -> Iterator[tuple[LaneKey, int]]:
        for lane, view in self.lanes_of(group):
            for seq in range(len(self.lanes[lane])):
                cell = view.cells.get(seq)
                if cell.state in ("leased", "waiting") if cell is not None else seq >= view.next:
                    yield lane, seq

    def advance(self, group: str, targets: dict[LaneKey, int]) -> int:
        """What the group was not handed below each target is acked; how many messages those are."""
        self.ensure_group(group)
        moved = 0
        for lane, target in targets.items():
            view = self.views[lane, group]
            for seq in range(view.next, target):
                view.cells[seq] = Cell("acked")
                moved += 1
            view.next = max(view.next, target)
        return moved

    def prune(self, lane: LaneKey, start: int) -> None:
        self.starts[lane] = start
        for (where, _), view in self.views.items():
            if where == lane and view.next < start:
                for seq in range(view.next, start):
                    view.cells[seq] = Cell("expired")
                view.next = start

    def purge(self) -> tuple[int, int, int]:
        """Everything goes: how many stored and scheduled messages, and how many the groups had not finished."""
        stored = sum(len(lane) - self.starts[key] for key, lane in self.lanes.items())
        skipped = sum(self._skip_all(lane, view) for (lane, _), view in self.views.items())
        for lease in self.leases.values():
            if not lease.gone:
                self.end_if_empty(lease, "purged")
        for lane in self.lanes:
            self.starts[lane] = len(self.lanes[lane])
        scheduled, self.scheduled = len(self.scheduled), []
        for key, (_, maybe) in self.remembered.items():
            self.remembered[key] = -1, maybe
        return stored, scheduled, skipped

    def _skip_all(self, lane: LaneKey, view: View) -> int:
        skipped = 0
        for seq in range(view.first, len(self.lanes[lane])):
            cell = view.cells.setdefault(seq, Cell("ready"))
            if cell.state in DONE:
                continue
            if cell.lease is not None:
                self.leases[cell.lease].lost.add((lane, seq))
            view.cells[seq] = Cell("skipped")
            skipped += 1
        view.next = len(self.lanes[lane])
        return skipped

    def redrive(self, lane: LaneKey, seq: int, group: str, now: int) -> str:
        epoch, view = self.dead[lane, seq, group], self.views[lane, group]
        if epoch != view.epoch:
            if seq >= view.first:
                return "redrive_refused"
            view.cells.update({s: Cell("skipped") for s in range(seq + 1, view.first)})
            view.first = seq
        view.cells[seq] = Cell("waiting", due=now)
        del self.dead[lane, seq, group]
        return "redriven"
