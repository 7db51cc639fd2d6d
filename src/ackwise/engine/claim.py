"""Claims: checks exclusivity, finds and visits ready lanes, lets core select their messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ackwise.core.answers import Claimed
from ackwise.core.commands import Claim
from ackwise.core.errors import ClaimConflict
from ackwise.core.ids import GroupId, LaneId
from ackwise.core.lane_range import LaneRange, merge_ranges
from ackwise.core.lane_selection import EmptyReason, LanePlan, LaneView, Take, may_enter, plan_lane
from ackwise.core.policy import Exclusivity, order_for
from ackwise.core.spans import Cursor, Span
from ackwise.engine import catalog, tagged_queues
from ackwise.engine import cursors as engine_cursors
from ackwise.engine.catalog import GroupRow, QueueRow
from ackwise.engine.expiry import expire, expire_group
from ackwise.engine.grant import GrantWriter, byte_budget, fingerprint
from ackwise.engine.named_claim import NamedMessages
from ackwise.engine.ports import Outdated
from ackwise.engine.turn import Turn

SPAN_PAGE = 500
MOST_OWN_EXPIRED = 200
LANE_PAGE = 32
MOST_LANES_SEEN = 50_000
MOST_WAITS = 8
FAR = 1 << 62


def claim(turn: Turn, command: Claim) -> Claimed:
    if command.queue is not None:
        queue = catalog.ensure_queue(turn, command.queue, command.create)
        return _QueueClaim(turn, command, queue).run()
    return tagged_queues.claim_by_tag(turn, command, lambda queue: _QueueClaim(turn, command, queue))


class _QueueClaim:
    """One claim on one queue."""

    def __init__(self, turn: Turn, command: Claim, queue: QueueRow) -> None:
        self.turn, self.command, self.queue = turn, command, queue
        self.session = turn.session
        self.group: GroupRow = catalog.ensure_group(turn, queue, command.group, command.start)
        self.policy = catalog.policy_in_force(queue, self.group)
        self.exclusivity: Exclusivity = command.exclusivity or queue.policy.exclusivity
        same = self.exclusivity == queue.policy.exclusivity
        order = command.order or (queue.order if same else order_for(self.exclusivity))
        self.strict = order == "strict"
        self.owner = command.owner or ""
        self.room = command.most
        self.budget = byte_budget(turn, command)
        self.taken_before = self.budget.taken
        self.picked: list[tuple[Cursor, list[Take]]] = []
        self.parts: set[int] = set()
        self.visited: set[int] = set()
        self.cursors_by_part: dict[int, dict[int, Cursor] | None] = {}
        self.passed_over = 0
        self.solo = False
        self.named: dict[int, list[tuple[int, int]]] = {}
        self.gone: list[LaneRange] = []
        if command.only:
            for lane, lo, hi in merge_ranges(command.only, len(command.only) + 1):
                self.named.setdefault(lane, []).append((lo, hi))
        self.blocked: EmptyReason | None = None
        self.until: int | None = None

    def run(self) -> Claimed:
        if not self.turn.memory.alone:
            self.session.lock_group(self.group.id, alone=self.exclusivity == "queue")
        if self.command.key is not None and (answer := self.repeated()) is not None:
            return answer
        if self.budget.full:
            return Claimed(self.group.name, [], empty=EmptyReason.EMPTY)
        if self.queue.paused:
            return Claimed(self.group.name, [], empty=EmptyReason.PAUSED)
        if self.turn.overdue:
            expire_group(self.turn, MOST_OWN_EXPIRED, self.group.id)
        if (until := self._locked_until()) is not None:
            return Claimed(self.group.name, [], empty=EmptyReason.LOCKED, until=until)
        finder = _LaneFinder(self.turn, self.command, self.queue, self.group.id, self.owner, strict=self.strict)
        for part, lanes in finder.candidates(lambda: bool(self.picked)):
            self._visit(part, lanes)
            if self.room == 0 or self.solo or len(self.parts) == (self.command.most_partitions or -1):
                break
        for lane in finder.unknown:
            self.gone += [LaneRange(LaneId(lane), lo, hi) for lo, hi in self.named[lane]]
        if not self.picked:
            return self._empty()
        claimed = self._writer().grant(self.picked, self.exclusivity, self.budget.taken - self.taken_before)
        claimed.gone = self.gone
        return claimed

    def _writer(self) -> GrantWriter:
        return GrantWriter(self.turn, self.command, self.queue, self.group, self.policy)

    def repeated(self) -> Claimed | None:
        """Answer to a repeated claim key: the messages still outstanding, under a new lease. None for a new key."""
        key = self.command.key
        lease = self.turn.lease_by_key(self.group.id, key) if key is not None else None
        if lease is None:
            return None
        if lease.fingerprint != fingerprint(self.command, self.queue, self.group):
            raise ClaimConflict(f"claim key {key!r} was used before for another queue, group, filter or owner", key=key)
        if not lease.live(self.turn.now) or not self.command.takes_over:
            return Claimed(self.group.name, [], empty=EmptyReason.ENDED)
        spans = self.turn.spans("spans_of_lease", lease=lease.no)
        self.session.lock_parts(sorted({self._cursor(span.lane).part for span in spans}))
        lease = self.turn.lease(lease.no)
        if lease is not None:
            self.turn.own_lease(lease)
        if lease is None or lease.key != key or not lease.live(self.turn.now):
            raise Outdated(f"another turn took over the claim {key!r}")
        spans = self.turn.spans("spans_of_lease", lease=lease.no)
        handed = [(self._cursor(span.lane), span) for span in spans]
        self.budget.add(size := sum(len(span) * cursor.largest for cursor, span in handed))
        return self._writer().take_over(lease, handed, size)

    def _cursor(self, lane: LaneId) -> Cursor:
        cursor = self.turn.cursor(lane, self.group.id)
        assert cursor is not None
        return cursor

    def _locked_until(self) -> int | None:
        """When the lease ends that keeps this claim out of the whole queue. None if there is no such lease."""
        where = {"grp": self.group.id, "owner": self.owner, "now": self.turn.now}
        if self.exclusivity == "queue":
            holder = self.session.row("lease_other", where)
        elif self.turn.has_no_queue_lease(self.group.id):
            return None
        else:
            holder = self.session.row("lease_whole_queue", where)
        return None if holder is None else int(holder[1])

    def _visit(self, part: int, lanes: set[int] | None) -> None:
        """Take messages from lanes of a locked partition."""
        if (cursors := self._cursors_in(part)) is None:
            self.blocked = EmptyReason.LOCKED
            return
        for cursor in cursors.values() if lanes is None else self._wanted(cursors, lanes):
            wanted = self.command.priorities is None or cursor.prio in self.command.priorities
            if wanted and self.room and not self.solo and cursor.lane not in self.visited:
                self.visited.add(cursor.lane)
                self._take(cursor)

    def _wanted(self, cursors: dict[int, Cursor], lanes: set[int]) -> list[Cursor]:
        """The cursors of `lanes`, and of more urgent lanes of the partition that became ready since the search.

        The search runs before the partition is locked.
        """
        least = max((cursors[lane].prio for lane in lanes & cursors.keys()), default=-1)
        return [
            cursor
            for cursor in cursors.values()
            if cursor.lane in lanes
            or (cursor.prio < least and cursor.ready_at is not None and cursor.ready_at <= self.turn.now)
        ]

    def _cursors_in(self, part: int) -> dict[int, Cursor] | None:
        """The group's cursors in a partition by lane, read once per claim. None if another owner excludes the claim."""
        if part not in self.cursors_by_part:
            self._expire_skipped()
            rows = self.session.rows("cursors_of_part", {"part": part, "grp": self.group.id})
            cursors = [Cursor(*row) for row in rows]
            may = self._may_enter(cursors)
            self.cursors_by_part[part] = {cursor.lane: cursor for cursor in cursors} if may else None
            if not may:
                self._mark_closed(cursors)
        return self.cursors_by_part[part]

    def _expire_skipped(self) -> None:
        """Expire leases that the turn skipped while another turn held their partitions, once it locks more partitions.

        Nothing expires once the claim has picked messages: an expiry changes cursors that the grant writes.
        """
        if self.picked or self.session.passed_over == self.passed_over:
            return
        if expire(self.turn, MOST_OWN_EXPIRED, self.group.id):
            self.cursors_by_part.clear()
        self.passed_over = self.session.passed_over

    def _mark_closed(self, cursors: list[Cursor]) -> None:
        """Mark the free lanes beside an exclusively held lane as not ready. The end of that hold reopens them."""
        if any(cursor.exclusive_owner is not None for cursor in cursors):
            for cursor in cursors:
                if cursor.ready_at is not None:
                    cursor.ready_at = None
                    self.turn.save_cursor(cursor)

    def _may_enter(self, cursors: list[Cursor]) -> bool:
        """Whether exclusivity lets this claim take messages of a partition."""
        leased = sum(cursor.leased for cursor in cursors)
        holder = next((c.exclusive_owner for c in cursors if c.exclusive_owner is not None), None)
        sole: str | None = self.owner
        if self.exclusivity != "none" and leased and holder is None:
            for cursor in cursors:
                where = {"lane": cursor.lane, "grp": self.group.id, "owner": self.owner}
                if cursor.leased and self.session.row("lease_owner_in_lane", where):
                    sole = None
        return may_enter(self.exclusivity, self.owner, leased=leased, exclusive_owner=holder, sole_owner=sole)

    def _take(self, cursor: Cursor) -> None:
        """Take the messages of a lane that core selects, or note why there are none."""
        if self.command.only is not None:
            self._take_named(cursor)
            return
        plan = self._plan(cursor)
        if plan.takes:
            self._pick(cursor, plan)
        else:
            self._note_blocked(cursor, plan)

    def _take_named(self, cursor: Cursor) -> None:
        """Take named messages of a lane that are available. In a strict lane they must be the next ones."""
        if (ranges := self.named.pop(cursor.lane, None)) is None:
            return
        named = NamedMessages(self.turn, cursor, ranges)
        named.load()
        if self.strict:
            plan = named.in_order(self._plan(cursor), self.room)
        else:
            room = max(self.room, ranges[-1][1] - cursor.next)
            fresh_hi, _ = engine_cursors.fresh_limit(self.turn, cursor, self.policy, room)
            plan = named.plan(fresh_hi, room=self.room, owner=self.owner, alone=not self.picked, bulk=self.command.bulk)
        self.gone += [LaneRange(cursor.lane, lo, hi) for lo, hi in named.gone]
        if plan.takes:
            before = len(self.picked)
            self._pick(cursor, plan)
            if not self.strict and len(self.picked) > before:
                named.cut_stored(self.picked[-1][1])
        elif plan.blocked is not None:
            self.blocked = plan.blocked

    def _plan(self, cursor: Cursor) -> LanePlan:
        fresh_hi, due_at = cursor.head, None
        if self.policy.delay_seconds or self.policy.window_seconds:
            fresh_hi, due_at = engine_cursors.fresh_limit(self.turn, cursor, self.policy, self.room)
        if self.command.pushed_by is not None and cursor.next < fresh_hi:
            after = self.command.pushed_by + 1
            fresh_hi = engine_cursors.seq_at(self.session, cursor.lane, cursor.next, fresh_hi, after)
        spans = self._spans(cursor) if cursor.held else iter(())
        if self.command.pushed_by is not None:
            spans = filter(self._may_take, spans)
        return plan_lane(
            LaneView(spans, cursor.next, fresh_hi, cursor.head, due_at),
            strict=self.strict,
            owner=self.owner,
            room=self.room,
            now=self.turn.now,
            alone=not self.picked,
            bulk=self.command.bulk,
        )

    def _may_take(self, span: Span) -> bool:
        """Whether `pushed_by` allows the span: it was delivered before, or its first message is old enough."""
        if self.command.pushed_by is None or not span.bypassed:
            return True  # delivered before
        after = self.command.pushed_by + 1
        return engine_cursors.seq_at(self.session, span.lane, span.lo, span.lo + 1, after) > span.lo

    def _pick(self, cursor: Cursor, plan: LanePlan) -> None:
        """Pick the planned messages that fit the byte budget. A full budget ends the claim."""
        takes = self.budget.fit(cursor, plan.takes)
        if takes:
            self.picked.append((cursor, takes))
            self.parts.add(cursor.part)
        full = takes != plan.takes or self.budget.full
        self.room = 0 if full else self.room - sum(take.hi - take.lo for take in takes)
        self.solo = plan.solo

    def _note_blocked(self, cursor: Cursor, plan: LanePlan) -> None:
        """Note why a lane has no messages for this claim, and the earliest instant to claim again."""
        if plan.blocked is None and cursor.held and not self.strict:
            row = self.session.row("span_next_due", {"lane": cursor.lane, "grp": cursor.grp})
            if row and row[0] is not None and row[0] > self.turn.now:
                plan.blocked, plan.until = EmptyReason.DELAYED, row[0]
        self._correct_ready_at(cursor)
        if plan.blocked is not None:
            self.blocked = plan.blocked
            if plan.until is not None and (self.until is None or plan.until < self.until):
                self.until = plan.until

    def _correct_ready_at(self, cursor: Cursor) -> None:
        """Correct `ready_at` of a lane without messages for this claim, so that the next claim visits another lane."""
        if self.strict == (self.queue.order == "strict"):
            ready = engine_cursors.ready_at(self.turn, cursor, self.policy)
            if ready != cursor.ready_at:
                cursor.ready_at = ready
                self.turn.save_cursor(cursor)

    def _spans(self, cursor: Cursor) -> Iterator[Span]:
        """Held spans of a lane: those that are due or, for a strict claim, all in order."""
        where = {"lane": cursor.lane, "grp": cursor.grp}
        if not self.strict:
            yield from self.turn.spans("spans_due", **where, now=self.turn.now, limit=max(self.room, SPAN_PAGE))
            return
        after = -1
        while True:
            page = self.turn.spans("spans_in_order", **where, after=after, limit=SPAN_PAGE)
            yield from page
            if len(page) < SPAN_PAGE:
                return
            after = page[-1].hi

    def _instant(self, statement: str) -> int | None:
        row = self.session.row(statement, {"grp": self.group.id, "now": self.turn.now})
        return row[0] if row else None

    def _empty(self) -> Claimed:
        """The answer without messages: the reason, and when to ask again."""
        reason, until = self.blocked, self.until
        if self.command.only is not None:
            return Claimed(self.group.name, [], empty=reason or EmptyReason.EMPTY, gone=self.gone)
        if reason is None and self.command.partitions is None:
            row = self.session.row("cursors_next_ready", {"grp": self.group.id})
            if row and row[0] is not None and row[0] > self.turn.now:
                reason, until = EmptyReason.DELAYED, row[0]
            elif self.session.row("cursor_exclusive", {"grp": self.group.id, "owner": self.owner}):
                reason = EmptyReason.LOCKED
        if reason is EmptyReason.LOCKED:
            until = until if until is not None else self._instant("leases_next_deadline")
            due = self._instant("cursors_next_due") if self.command.partitions is None else None
            until = min((at for at in (until, due) if at is not None), default=None)
        return Claimed(self.group.name, [], empty=reason or EmptyReason.EMPTY, until=until)


class _LaneFinder:
    """Finds and locks candidate lanes of one claim, longest ready first."""

    def __init__(self, turn: Turn, command: Claim, queue: QueueRow, grp: GroupId, owner: str, *, strict: bool) -> None:
        self._turn, self._session, self._now = turn, turn.session, turn.now
        self._command, self._queue, self._grp, self._owner, self._strict = command, queue, grp, owner, strict
        self.unknown: set[int] = set()
        """Lanes that the claim names and the queue does not have."""

    def candidates(self, satisfied: Callable[[], bool]) -> Iterator[tuple[int, set[int] | None]]:
        """Locked partitions with their candidate lanes (None: all lanes), until the claim is satisfied.

        Partitions that another turn holds come last. The finder waits for them only if the claim has no messages yet.
        """
        if self._command.only is not None:
            yield from self._named(self._command.only)
            return
        if self._command.partitions is not None:
            parts = [catalog.find_part(self._session, self._queue, name) for name in self._command.partitions]
            known = [part for part in parts if part is not None]
            self._session.lock_parts(sorted(known))
            yield from ((part, None) for part in known)
            return
        if self._command.owner is not None:
            rows = self._session.rows("cursors_owned", {"grp": self._grp, "owner": self._owner})
            locked = self._session.lock_parts(sorted({row[1] for row in rows}), skip=True)
            yield from ((part, None) for part in dict.fromkeys(row[1] for row in rows) if part in locked)
        for statement, where in self._searches():
            yield from self._ready(statement, where, satisfied)

    def _named(self, only: Iterable[LaneRange]) -> Iterator[tuple[int, set[int] | None]]:
        """The lanes of a claim of named messages by partition."""
        lanes: dict[int, set[int] | None] = {}
        for lane in sorted({named.lane for named in only}):
            row = self._session.row("lane_by_id", {"id": lane})
            if row is None or row[2] != self._queue.id:
                self.unknown.add(lane)
            else:
                lanes[row[1]] = (lanes.get(row[1]) or set()) | {lane}
        self._session.lock_parts(sorted(lanes))
        yield from lanes.items()

    def _searches(self) -> list[tuple[str, dict[str, int]]]:
        """Statements that find ready lanes: one for all lanes, or one per requested priority."""
        # A relaxed claim on a strict queue may take messages behind a delayed head. Such lanes are not marked ready.
        mixed = not self._strict and self._queue.order == "strict"
        where = {"grp": self._grp, "now": FAR if mixed else self._now}
        if self._command.priorities is None:
            return [("cursors_ready", where)]
        return [("cursors_ready_prio", {**where, "prio": prio}) for prio in sorted(set(self._command.priorities))]

    def _lock_free(self, parts: set[int]) -> set[int]:
        """Lock the partitions that no other turn holds, and return them."""
        return parts if self._turn.memory.alone else self._session.lock_parts(sorted(parts), skip=True)

    def _ready(
        self, statement: str, where: dict[str, int], satisfied: Callable[[], bool]
    ) -> Iterator[tuple[int, set[int]]]:
        """Ready lanes: first those that an earlier claim of this turn left over, then those that the database finds."""
        left = self._turn.ready.setdefault((statement, *where.values()), {})
        while left:
            row = next(iter(left.values()))
            del left[row[0]]
            yield row[1], {row[0]}
        skipped: list[tuple[int, set[int]]] = []
        seen = 0
        page = min(LANE_PAGE, max(4, self._command.most, self._turn.claims))
        while seen < MOST_LANES_SEEN:
            rows = self._session.rows(statement, {**where, "limit": page, "skip": seen})
            seen += len(rows)
            locked = self._lock_free({row[1] for row in rows})
            left.update((row[0], row) for row in rows if row[1] in locked)
            skipped += [(row[1], {row[0]}) for row in rows if row[1] not in locked]
            while left:
                row = next(iter(left.values()))
                del left[row[0]]
                yield row[1], {row[0]}
            if len(rows) < page:
                break
            page = LANE_PAGE
        for part, lanes in sorted(skipped[:MOST_WAITS], key=lambda s: s[0]):
            if satisfied():
                return
            self._session.lock_parts([part])
            yield part, lanes
