"""Claim: find lanes that are ready, let the core choose, write one lease and one span per run of messages."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ackwise.core import ids, limits
from ackwise.core.answers import Claimed, Grant
from ackwise.core.claiming import EmptyReason, LanePlan, LaneView, Take, may_enter, plan_lane
from ackwise.core.commands import Claim
from ackwise.core.errors import BadInput, ClaimConflict
from ackwise.core.policy import Exclusivity, checked, order_for
from ackwise.core.spans import Cursor, Lease, Span, merge_ranges
from ackwise.store.session import Outdated
from ackwise.store.turn import catalog, places, reading, tags
from ackwise.store.turn.catalog import GroupRow, QueueRow
from ackwise.store.turn.context import Turn
from ackwise.store.turn.expiry import expire, expire_own
from ackwise.store.turn.finding import Finder
from ackwise.store.turn.weight import Scale

SPAN_PAGE = 500
MOST_OWN_EXPIRED = 200
MOST_PREFETCHED = 64 << 20
"""Bytes that one turn reads for claims with auto-ack. Above this bound, each such claim takes one message."""


def check(command: Claim) -> None:
    """Refuse what is wrong before anything is made."""
    if command.queue is None and command.namespace is None and command.task is None:
        raise BadInput("a claim names a queue, or a namespace and/or a task")
    if command.queue is not None:
        limits.name(command.queue, "queue")
    limits.name(command.group, "group")
    for what, text in (("owner", command.owner), ("claim key", command.key)):
        if text is not None:
            limits.name(text, what)
    for what, text in (("namespace", command.namespace), ("task", command.task)):
        if text is not None:
            limits.tag(text, what)
    if command.exclusivity is not None:
        limits.one_of(command.exclusivity, "exclusivity", ("partition", "queue", "none"))
    if command.order is not None:
        limits.one_of(command.order, "order", ("strict", "relaxed"))
    limits.start(command.start)
    for partition in command.partitions or ():
        limits.name(partition, "partition")
    for priority in command.priorities or ():
        limits.count(priority, "priority", least=0, most=limits.MAX_PRIORITY)
    limits.count(command.most, "max")
    if command.most_bytes is not None:
        limits.claim_bytes(command.most_bytes)
    if command.most_partitions is not None:
        limits.count(command.most_partitions, "max_partitions")
    if command.lease is not None:
        limits.lease_of(command.lease)
    if command.pushed_by is not None:
        limits.instant(command.pushed_by, "pushed_by")
    if command.key is not None and command.auto_ack:
        raise BadInput("a claim with a key cannot auto-ack: there would be nothing to give again")
    if command.create is not None:
        checked(command.create)


def claim(turn: Turn, command: Claim) -> Claimed:
    check(command)
    if command.queue is not None:
        owner = catalog.ensure_queue(turn, command.queue, command.create)
        return _Claiming(turn, command, owner).run()
    return _claim_by_tag(turn, command)


def _claim_by_tag(turn: Turn, command: Claim) -> Claimed:
    """A claim on the queues of a namespace and task, the one that has been ready longest first.

    A group that begins at `all` joins an empty queue with its first message: it begins at the same place then. `new`
    joins every queue at once. An instant joins some empty queues with each claim: the next claim may name a later one.
    """
    empty = Claimed(command.group, [], empty=EmptyReason.EMPTY)
    seen: set[int] = set()
    more, every = True, command.start != "all"
    while more:
        more, every = tags.join(turn, command, every=every), command.start == "new"
        if command.key is not None:
            for owner in tags.astir(turn, command, set()):
                if (again := _Claiming(turn, command, owner).repeated()) is not None:
                    return again
        for owner in tags.astir(turn, command, seen):
            answer = _Claiming(turn, command, owner).run()
            if answer.grants or answer.empty is EmptyReason.ENDED:
                return answer
            empty = _more_telling(empty, answer)
    return empty


def _more_telling(one: Claimed, other: Claimed) -> Claimed:
    if one.empty is EmptyReason.EMPTY:
        return other
    if other.until is not None and (one.until is None or other.until < one.until):
        return other
    return one


def _scale(turn: Turn, command: Claim) -> Scale:
    """Weighs what the claim takes, together with the claims it shares its bytes with."""
    if command.together in turn.scales:
        return turn.scales[command.together]
    most = limits.DEFAULT_CLAIM_BYTES if command.most_bytes is None else command.most_bytes
    if command.auto_ack:
        # The turn itself reads messages of claims with auto-ack: all such claims of a turn share its memory.
        most = max(1, min(most, MOST_PREFETCHED - turn.prefetched))
    scale = Scale(turn.session, most)
    if command.together:
        turn.scales[command.together] = scale
    return scale


class _Claiming:
    """One claim on one queue."""

    def __init__(self, turn: Turn, command: Claim, queue: QueueRow) -> None:
        self.turn, self.command, self.queue = turn, command, queue
        self.session = turn.session
        self.group: GroupRow = catalog.ensure_group(turn, queue, command.group, command.start)
        self.policy = self.group.policy.over(queue.policy)
        self.exclusivity: Exclusivity = command.exclusivity or queue.policy.exclusivity
        same = self.exclusivity == queue.policy.exclusivity
        order = command.order or (queue.policy.order if same else None) or order_for(self.exclusivity)
        self.strict = order == "strict"
        self.no = 0
        self.owner = command.owner or ""
        self.room = command.most
        self.scale = _scale(turn, command)
        self.taken_before = self.scale.taken
        self.picked: list[tuple[Cursor, list[Take]]] = []
        self.parts: set[int] = set()
        self.looked_at: set[int] = set()
        self.places: dict[int, dict[int, Cursor] | None] = {}
        self.passed_over = 0
        self.solo = False
        self.blocked: EmptyReason | None = None
        self.until: int | None = None

    def run(self) -> Claimed:
        self.session.lock_group(self.group.id, alone=self.exclusivity == "queue")
        if (again := self.repeated()) is not None:
            return again
        if self.scale.full:
            return Claimed(self.group.name, [], empty=EmptyReason.EMPTY)
        if self.queue.paused:
            return Claimed(self.group.name, [], empty=EmptyReason.PAUSED)
        expire_own(self.turn, MOST_OWN_EXPIRED, self.group.id)
        if (until := self._shut_out()) is not None:
            return Claimed(self.group.name, [], empty=EmptyReason.LOCKED, until=until)
        finder = Finder(self.turn, self.command, self.queue, self.group.id, self.owner, strict=self.strict)
        for part, lanes in finder.candidates(lambda: bool(self.picked)):
            self._visit(part, lanes)
            if self.room == 0 or self.solo or len(self.parts) == (self.command.most_partitions or -1):
                break
        return self._grant() if self.picked else self._empty()

    def _fingerprint(self) -> str:
        c = self.command
        mark = (self.queue.name, self.group.name, c.partitions, c.priorities)
        return msgspec.json.encode(mark if c.owner is None else (*mark, c.owner)).decode()

    def repeated(self) -> Claimed | None:
        """The same claim again: what is still outstanding, under a new lease number."""
        key = self.command.key
        lease = self.turn.lease_by_key(self.group.id, key) if key is not None else None
        if lease is None:
            return None
        if lease.fingerprint != self._fingerprint():
            raise ClaimConflict(f"claim key {key!r} was used before for another queue, group, filter or owner", key=key)
        if not lease.live(self.turn.now) or not self.command.takes_over:
            return Claimed(self.group.name, [], empty=EmptyReason.ENDED)
        spans = self.turn.spans("spans_of_lease", lease=lease.no)
        self.session.lock_parts(sorted({self._cursor(span.lane).part for span in spans}))
        lease = self.turn.lease(lease.no)
        if lease is not None:
            self.turn.own_lease(lease)
        if lease is None or lease.key != key or not lease.live(self.turn.now):
            raise Outdated(f"the claim {key!r} changed hands meanwhile")
        spans = self.turn.spans("spans_of_lease", lease=lease.no)
        self.session.run("lease_unkey", {"no": lease.no})
        lease.key = None
        lease.lost = merge_ranges(lease.lost + [(s.lane, s.lo, s.hi) for s in spans], places.MOST_LOST_RANGES)
        self.turn.end_lease(lease, "superseded")
        self._add_lease([(s.lane, s.lo, s.hi) for s in spans], lease.exclusivity, lease.owner)
        for span in spans:
            span.lease, span.delivs = self.no, span.delivs + 1
            self.turn.replace_span(span, [span])
        handed = [(self._cursor(span.lane), span) for span in spans]
        self.scale.add(size := sum(len(span) * cursor.largest for cursor, span in handed))
        return self._answer(handed, size)

    def _cursor(self, lane: int) -> Cursor:
        cursor = self.turn.cursor(lane, self.group.id)
        assert cursor is not None
        return cursor

    def _shut_out(self) -> int | None:
        """Until when somebody holds the whole queue, or anything of it if this claim wants it whole."""
        where = {"grp": self.group.id, "owner": self.owner, "now": self.turn.now}
        if self.exclusivity == "queue":
            holder = self.session.row("lease_other", where)
        elif self.turn.nobody_has_all(self.group.id):
            return None
        else:
            holder = self.session.row("lease_whole_queue", where)
        return None if holder is None else int(holder[1])

    def _visit(self, part: int, lanes: set[int] | None) -> None:
        if (here := self._entered(part)) is None:
            self.blocked = EmptyReason.LOCKED
            return
        for cursor in here.values() if lanes is None else self._meant(here, lanes):
            wanted = self.command.priorities is None or cursor.prio in self.command.priorities
            if wanted and self.room and not self.solo and cursor.lane not in self.looked_at:
                self.looked_at.add(cursor.lane)
                self._take(cursor)

    def _meant(self, here: dict[int, Cursor], lanes: set[int]) -> list[Cursor]:
        """These lanes, after more urgent ones that are ready by now: they were looked for before they were owned."""
        least = max((here[lane].prio for lane in lanes & here.keys()), default=-1)
        return [
            cursor
            for cursor in here.values()
            if cursor.lane in lanes
            or (cursor.prio < least and cursor.ready_at is not None and cursor.ready_at <= self.turn.now)
        ]

    def _entered(self, part: int) -> dict[int, Cursor] | None:
        """The group's places in a partition by lane, read once for each claim; None if others keep this claim out."""
        if part not in self.places:
            self._look_again()
            rows = self.session.rows("cursors_of_part", {"part": part, "grp": self.group.id})
            cursors = [Cursor(*row) for row in rows]
            may = self._may_enter(cursors)
            self.places[part] = {cursor.lane: cursor for cursor in cursors} if may else None
            if not may:
                self._close_doors(cursors)
        return self.places[part]

    def _look_again(self) -> None:
        """Leases that had run out were left to who had their partitions then; perhaps nobody else has them now.

        Not when something is picked: what expires changes places that were read, and a grant writes those it picked.
        """
        if self.picked or self.session.passed_over == self.passed_over:
            return
        if expire(self.turn, MOST_OWN_EXPIRED, self.group.id):
            self.places.clear()
        self.passed_over = self.session.passed_over

    def _close_doors(self, cursors: list[Cursor]) -> None:
        """Free lanes beside an exclusively held one are not ready until that hold ends, which opens them again."""
        if any(cursor.exclusive_owner is not None for cursor in cursors):
            for cursor in cursors:
                if cursor.ready_at is not None:
                    cursor.ready_at = None
                    self.turn.save_cursor(cursor)

    def _may_enter(self, cursors: list[Cursor]) -> bool:
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
        fresh_hi, due_at = places.fresh_limit(self.session, cursor, self.policy, self.turn.now, self.room)
        if self.command.pushed_by is not None and cursor.next < fresh_hi:
            after = self.command.pushed_by + 1
            fresh_hi = places.seq_at(self.session, cursor.lane, cursor.next, fresh_hi, after)
        spans = self._spans(cursor) if cursor.held else iter(())
        plan: LanePlan = plan_lane(
            LaneView(spans, cursor.next, fresh_hi, cursor.head, due_at),
            strict=self.strict,
            owner=self.owner,
            room=self.room,
            now=self.turn.now,
            alone=not self.picked,
            bulk=self.command.bulk,
        )
        if plan.takes:
            takes = self.scale.fit(cursor, plan.takes)
            if takes:
                self.picked.append((cursor, takes))
                self.parts.add(cursor.part)
            cut = takes != plan.takes or self.scale.full
            self.room = 0 if cut else self.room - sum(take.hi - take.lo for take in takes)
            self.solo = plan.solo
            return
        if plan.blocked is None and cursor.held and not self.strict:
            row = self.session.row("span_next_due", {"lane": cursor.lane, "grp": cursor.grp})
            if row and row[0] is not None and row[0] > self.turn.now:
                plan.blocked, plan.until = EmptyReason.DELAYED, row[0]
        self._mark_again(cursor)
        if plan.blocked is not None:
            self.blocked = plan.blocked
            if plan.until is not None and (self.until is None or plan.until < self.until):
                self.until = plan.until

    def _mark_again(self, cursor: Cursor) -> None:
        """A lane that gave nothing goes where it belongs in the order of ready lanes; the next looks elsewhere."""
        if self.strict == (self.queue.policy.effective_order == "strict"):
            ready = places.ready_at(self.turn, cursor, self.policy)
            if ready != cursor.ready_at:
                cursor.ready_at = ready
                self.turn.save_cursor(cursor)

    def _spans(self, cursor: Cursor) -> Iterator[Span]:
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

    def _grant(self) -> Claimed:
        granted = [(cursor.lane, take.lo, take.hi) for cursor, takes in self.picked for take in takes]
        if not self.command.auto_ack:
            self._add_lease(granted, self.exclusivity, self.owner)
        handed: list[tuple[Cursor, Span]] = []
        for cursor, takes in self.picked:
            for take in takes:
                handed.append((cursor, self._hand_over(cursor, take)))
            if not self.command.auto_ack:
                cursor.leased += 1
                if self.exclusivity != "none":
                    cursor.exclusive += 1
                    cursor.exclusive_owner = self.owner
            returned = self.command.auto_ack or cursor.held > sum(take.hi - take.lo for take in takes)
            cursor.ready_at = places.ready_at(self.turn, cursor, self.policy, returned=returned)
            self.turn.save_cursor(cursor)
        if self.command.auto_ack:
            self.turn.count(self.queue.name, self.group.name, "acked", sum(len(span) for _, span in handed), 0)
        return self._answer(handed, self.scale.taken - self.taken_before)

    def _add_lease(self, granted: list[tuple[int, int, int]], exclusivity: str, owner: str) -> None:
        """The claim gets its number here, when everything it takes is locked."""
        self.no = self.turn.next_lease_no()
        self.owner = owner or ids.default_owner(self.no)
        lease_for = self.command.lease or round(self.policy.lease_seconds * limits.MICROS)
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
            granted=merge_ranges(granted, 1 << 30),
            key=self.command.key,
            fingerprint=self._fingerprint() if self.command.key is not None else None,
        )
        self.turn.add_lease(lease)

    def _hand_over(self, cursor: Cursor, take: Take) -> Span:
        """Move [lo, hi) under the lease, or out of the group's way with auto-ack."""
        size = take.hi - take.lo
        base = take.span or Span(cursor.lane, cursor.grp, take.lo, take.hi)
        handed = msgspec.structs.replace(
            base, lo=take.lo, hi=take.hi, lease=self.no, delivs=base.delivs + 1, last_owner=self.owner, due_at=0
        )
        rest = [take.span.part(take.hi, take.span.hi)] if take.span is not None and take.hi < take.span.hi else []
        if self.command.auto_ack:
            cursor.acked += size
            cursor.note_acked(take.hi - 1, self.turn.now)
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
            read = [reading.segments(self.session, g.lane, g.lo, g.hi) for g in grants]
            self.turn.prefetched += size
            return Claimed(self.group.name, grants, prefetched=read, size=size)
        return Claimed(self.group.name, grants, lease.no, lease.tag, lease.deadline, size=size)

    def _instant(self, statement: str) -> int | None:
        row = self.session.row(statement, {"grp": self.group.id, "now": self.turn.now})
        return row[0] if row else None

    def _empty(self) -> Claimed:
        """Nothing to hand out, and why."""
        reason, until = self.blocked, self.until
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
