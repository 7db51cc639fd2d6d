"""Claims of named messages: which of them a lane can deliver now, and which are gone.

A claim of named messages may bypass unread messages. A bypassed message stays ready: it becomes part of a span without
a lease, with `due_at` 0 and no delivery. Every other span without a lease has a later `due_at`, because a delivery
ended then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ackwise.core.lane_range import overlaps, without
from ackwise.core.lane_selection import LanePlan, LaneView, Take, plan_lane
from ackwise.core.spans import Cursor, Span
from ackwise.engine.turn import Turn

Ranges = list[tuple[int, int]]
"""Sorted, disjoint ranges [lo, hi) of one lane."""


class NamedMessages(msgspec.Struct):
    """The named messages of one lane, for one claim."""

    turn: Turn
    cursor: Cursor
    ranges: Ranges
    stored: list[Span] = []
    """Spans without a lease that hold named messages and are due."""

    def load(self) -> None:
        where = {"lane": self.cursor.lane, "grp": self.cursor.grp}
        spans: dict[int, Span] = {}
        for lo, hi in overlaps(self.ranges, 0, self.cursor.next):
            rows = self.turn.spans("spans_inside", **where, lo=lo, hi=hi)
            rows += self.turn.spans("span_across", **where, hi=hi)
            spans.update((span.hi, span) for span in rows if span.lo < hi)
        now = self.turn.now
        self.stored = [spans[hi] for hi in sorted(spans) if spans[hi].lease is None and spans[hi].due_at <= now]

    @property
    def gone(self) -> Ranges:
        """Named messages that are finished, leased or wait for their retry. Unread messages are never gone."""
        read = overlaps(self.ranges, 0, self.cursor.next)
        return without(read, [(span.lo, span.hi) for span in self.stored])

    def plan(self, fresh_hi: int, *, room: int, owner: str, alone: bool, bulk: bool) -> LanePlan:
        """Select named messages in any order. The spans of the plan are parts of stored spans: see `cut_stored`."""
        pieces = [span.part(lo, hi) for span in self.stored for lo, hi in overlaps(self.ranges, span.lo, span.hi)]
        end = self.cursor.next
        plan = plan_lane(
            LaneView(pieces, end, end, end),
            strict=False, owner=owner, room=room, now=self.turn.now, alone=alone, bulk=bulk,
        )  # fmt: skip
        if plan.solo:
            return plan
        room -= sum(take.hi - take.lo for take in plan.takes)
        for lo, hi in overlaps(self.ranges, end, fresh_hi):
            if room:
                plan.takes.append(Take(lo, min(hi, lo + room), None))
                room -= plan.takes[-1].hi - lo
        return plan

    def in_order(self, plan: LanePlan, room: int) -> LanePlan:
        """The first messages of a strict plan up to the first one that the claim does not name."""
        takes = list(self._named_prefix(plan.takes, room))
        return LanePlan(takes, solo=plan.solo and bool(takes), blocked=plan.blocked, until=plan.until)

    def _named_prefix(self, takes: Sequence[Take], room: int) -> Iterator[Take]:
        for take in takes:
            named = overlaps(self.ranges, take.lo, take.hi)
            if not room or not named or named[0][0] != take.lo:
                return
            hi = min(named[0][1], take.lo + room)
            yield Take(take.lo, hi, take.span)
            room -= hi - take.lo
            if hi < take.hi:
                return

    def cut_stored(self, takes: Sequence[Take]) -> None:
        """Cut stored spans, so that each taken part of a span is a span of its own."""
        pieces = [take.span for take in takes if take.span is not None]
        for span in self.stored:
            taken = [piece for piece in pieces if span.lo <= piece.lo and piece.hi <= span.hi]
            if taken and (len(taken) > 1 or len(taken[0]) < len(span)):
                rest = without([(span.lo, span.hi)], [(piece.lo, piece.hi) for piece in taken])
                self.turn.replace_span(span, taken + [span.part(lo, hi) for lo, hi in rest])


def bypass(turn: Turn, cursor: Cursor, seq: int) -> None:
    """Move the cursor to `seq`. The unread messages before it stay ready, in a span without a lease."""
    turn.add_span(Span(cursor.lane, cursor.grp, cursor.next, seq))
    cursor.held += seq - cursor.next
    cursor.next = seq
