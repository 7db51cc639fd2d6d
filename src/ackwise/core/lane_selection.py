"""Selects the messages of one lane that a claim may take now."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from ackwise.core.spans import Span


class EmptyReason(StrEnum):
    """Why a claim returned no messages."""

    EMPTY = "empty"
    LOCKED = "locked"
    DELAYED = "delayed"
    PAUSED = "paused"
    ENDED = "ended"
    DRAINING = "draining"
    UNAVAILABLE = "unavailable"
    """The claim failed after the store had done the earlier part of the same call. A new claim shows the error."""


class Take(msgspec.Struct, frozen=True):
    """Messages [lo, hi) of the lane to deliver. `span` is the returned span they come from, None for unread ones."""

    lo: int
    hi: int
    span: Span | None


class LanePlan(msgspec.Struct):
    """The messages that a claim takes from a lane, and the reason why it takes no more.

    `solo` ends the claim: a message on probation is delivered alone.
    """

    takes: list[Take]
    solo: bool = False
    blocked: EmptyReason | None = None
    until: int | None = None

    def delay(self, until: int | None) -> None:
        """Note that messages of the lane are not due yet, and when the first of them is."""
        self.blocked = EmptyReason.DELAYED
        if until is not None:
            self.until = until if self.until is None else min(self.until, until)


class LaneView(msgspec.Struct, frozen=True):
    """A lane as the decision sees it. `fresh_hi` is the first unread message that is not due yet."""

    spans: Iterable[Span]
    next: int
    fresh_hi: int
    head: int
    fresh_due_at: int | None = None


def plan_lane(view: LaneView, *, strict: bool, owner: str, room: int, now: int, alone: bool, bulk: bool) -> LanePlan:
    """Select up to `room` messages of a lane, returned ones first.

    `alone` says that the claim holds no message yet. Only such a claim may take a message on probation.
    """
    plan = LanePlan([])
    for span in view.spans:
        if room == 0:
            return plan
        if span.lease is not None or span.due_at > now:
            closed = _pass_by(plan, span, strict=strict, owner=owner)
        elif span.probation and not bulk:
            if alone and not plan.takes:
                return LanePlan([Take(span.lo, span.lo + 1, span)], solo=True)
            closed = strict
        else:
            hi = min(span.hi, span.lo + room)
            plan.takes.append(Take(span.lo, hi, span))
            room -= hi - span.lo
            continue
        if closed:
            return plan
    return _take_fresh(plan, view, room)


def _pass_by(plan: LanePlan, span: Span, *, strict: bool, owner: str) -> bool:
    """Skip a span that is leased or not due yet. Returns True if the span closes the lane for this claim."""
    if span.lease is not None:
        if strict and span.owner != owner:
            plan.blocked = EmptyReason.LOCKED
            return True
        return False
    plan.delay(span.due_at)
    return strict


def _take_fresh(plan: LanePlan, view: LaneView, room: int) -> LanePlan:
    """Add unread messages to the plan."""
    hi = min(view.fresh_hi, view.next + room)
    if hi > view.next:
        plan.takes.append(Take(view.next, hi, None))
    elif room and view.head > view.next:
        plan.delay(view.fresh_due_at)
    return plan


def may_enter(
    exclusivity: str, owner: str, *, leased: int, exclusive_owner: str | None, sole_owner: str | None = None
) -> bool:
    """Whether a claim may take messages of a partition beside its present holders. An owner never excludes itself."""
    if exclusive_owner is not None:
        return exclusive_owner == owner
    if exclusivity == "none" or leased == 0:
        return True
    return sole_owner == owner
