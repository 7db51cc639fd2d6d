"""Which messages of one lane a claim may take now."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from ackwise.core.spans import Span


class EmptyReason(StrEnum):
    """Why a claim came back with nothing."""

    EMPTY = "empty"
    LOCKED = "locked"
    DELAYED = "delayed"
    PAUSED = "paused"
    ENDED = "ended"
    DRAINING = "draining"
    UNAVAILABLE = "unavailable"
    """What came before the claim in the same call was done; then the store failed."""


class Take(msgspec.Struct, frozen=True):
    """Messages [lo, hi) to hand out; `span` is the returned span they come from, None for fresh ones."""

    lo: int
    hi: int
    span: Span | None


class LanePlan(msgspec.Struct):
    """What a lane gives, and what stopped it from giving more."""

    takes: list[Take]
    solo: bool = False
    blocked: EmptyReason | None = None
    until: int | None = None


class LaneView(msgspec.Struct, frozen=True):
    """What the decision sees of a lane: `fresh_hi` is the first unread message not yet due."""

    spans: Iterable[Span]
    next: int
    fresh_hi: int
    head: int
    fresh_due_at: int | None = None


def plan_lane(view: LaneView, *, strict: bool, owner: str, room: int, now: int, alone: bool, bulk: bool) -> LanePlan:
    """Take up to `room` messages. `alone`: the claim holds nothing yet, so it may take one that is on probation."""
    plan = LanePlan([])
    for span in view.spans:
        if room == 0:
            return plan
        if span.lease is not None:
            if strict and span.owner != owner:
                plan.blocked = EmptyReason.LOCKED
                return plan
            continue
        if span.due_at > now:
            plan.until = span.due_at if plan.until is None else min(plan.until, span.due_at)
            plan.blocked = EmptyReason.DELAYED
            if strict:
                return plan
            continue
        if span.probation and not bulk:
            if alone and not plan.takes:
                return LanePlan([Take(span.lo, span.lo + 1, span)], solo=True)
            if strict:
                return plan
            continue
        hi = min(span.hi, span.lo + room)
        plan.takes.append(Take(span.lo, hi, span))
        room -= hi - span.lo
    return _take_fresh(plan, view, room)


def _take_fresh(plan: LanePlan, view: LaneView, room: int) -> LanePlan:
    hi = min(view.fresh_hi, view.next + room)
    if hi > view.next:
        plan.takes.append(Take(view.next, hi, None))
    elif room and view.head > view.next:
        plan.blocked = EmptyReason.DELAYED
        if view.fresh_due_at is not None:
            plan.until = view.fresh_due_at if plan.until is None else min(plan.until, view.fresh_due_at)
    return plan


def may_enter(
    exclusivity: str, owner: str, *, leased: int, exclusive_owner: str | None, sole_owner: str | None = None
) -> bool:
    """Whether a claim may hold a partition next to who holds it now. An owner never excludes itself."""
    if exclusive_owner is not None:
        return exclusive_owner == owner
    if exclusivity == "none" or leased == 0:
        return True
    return sole_owner == owner
