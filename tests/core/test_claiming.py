"""Which messages of one lane a claim may take."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.core.ids import GroupId, LaneId
from ackwise.core.lane_selection import LanePlan, LaneView, may_enter, plan_lane
from ackwise.core.spans import Span

NOW = 1000


def span(lo: int, hi: int, **rest: Any) -> Span:
    return Span(LaneId(1), GroupId(1), lo, hi, **rest)


def plan(spans: list[Span], next_seq: int, head: int, **how: Any) -> LanePlan:
    fresh_hi = how.pop("fresh_hi", head)
    due = how.pop("fresh_due_at", None)
    defaults = {"strict": False, "owner": "me", "room": 10, "now": NOW, "alone": True, "bulk": False}
    return plan_lane(LaneView(spans, next_seq, fresh_hi, head, due), **{**defaults, **how})


def taken(found: LanePlan) -> list[tuple[int, int]]:
    return [(take.lo, take.hi) for take in found.takes]


@pytest.mark.parametrize("strict", [False, True])
def test_fresh_messages_up_to_the_room(strict: bool) -> None:
    assert taken(plan([], 5, 8, strict=strict)) == [(5, 8)]
    assert taken(plan([], 5, 100, strict=strict, room=3)) == [(5, 8)]
    empty = plan([], 5, 5, strict=strict)
    assert (empty.takes, empty.blocked) == ([], None)


@pytest.mark.parametrize("strict", [False, True])
def test_returned_messages_first(strict: bool) -> None:
    found = plan([span(0, 2), span(4, 5)], 6, 9, strict=strict, room=5)
    assert taken(found) == [(0, 2), (4, 5), (6, 8)]
    assert [take.span is None for take in found.takes] == [False, False, True]


def test_delayed_message_closes_strict_lane_only() -> None:
    waiting = [span(0, 1), span(1, 2, due_at=NOW + 5), span(2, 3)]
    strict, relaxed = plan(waiting, 3, 5, strict=True), plan(waiting, 3, 5)
    assert taken(strict) == [(0, 1)]
    assert (strict.blocked, strict.until) == ("delayed", NOW + 5)
    assert taken(relaxed) == [(0, 1), (2, 3), (3, 5)]


def test_due_means_at_or_before_now() -> None:
    assert taken(plan([span(0, 1, due_at=NOW)], 1, 1)) == [(0, 1)]
    late = plan([span(0, 1, due_at=NOW + 1), span(1, 2, due_at=NOW + 9)], 2, 2)
    assert (late.takes, late.blocked, late.until) == ([], "delayed", NOW + 1)


def test_strict_lane_waits_for_other_owner_not_for_own() -> None:
    held = [span(0, 2, lease=7, owner="you")]
    blocked = plan(held, 2, 5, strict=True)
    assert (blocked.takes, blocked.blocked) == ([], "locked")
    assert taken(plan(held, 2, 5)) == [(2, 5)]
    assert taken(plan([span(0, 2, lease=7, owner="me")], 2, 5, strict=True)) == [(2, 5)]


def test_probation_goes_out_alone() -> None:
    found = plan([span(0, 4, probation=1)], 4, 9)
    assert (taken(found), found.solo) == ([(0, 1)], True)


def test_probation_waits_when_the_claim_holds_something_already() -> None:
    assert taken(plan([span(0, 1, probation=1)], 1, 3, alone=False)) == [(1, 3)]
    assert taken(plan([span(0, 1, probation=1)], 1, 3, alone=False, strict=True)) == []
    assert taken(plan([span(0, 1), span(1, 2, probation=1)], 2, 4, strict=True)) == [(0, 1)]
    assert taken(plan([span(0, 1), span(1, 2, probation=1)], 2, 4)) == [(0, 1), (2, 4)]


def test_bulk_claims_ignore_probation() -> None:
    found = plan([span(0, 2, probation=1)], 2, 4, bulk=True)
    assert (taken(found), found.solo) == ([(0, 2), (2, 4)], False)


def test_queue_delay_holds_back_fresh_messages() -> None:
    held_back = plan([], 5, 9, fresh_hi=5, fresh_due_at=NOW + 7)
    assert (held_back.takes, held_back.blocked, held_back.until) == ([], "delayed", NOW + 7)
    assert taken(plan([], 5, 9, fresh_hi=7, fresh_due_at=NOW + 7)) == [(5, 7)]


@st.composite
def lanes(draw: st.DrawFn) -> tuple[list[Span], int, int]:
    spans, at = [], 0
    for _ in range(draw(st.integers(0, 6))):
        lo = at + draw(st.integers(0, 2))
        hi = at = lo + draw(st.integers(1, 4))
        lease = draw(st.none() | st.integers(1, 3))
        owner = draw(st.sampled_from(["me", "you"])) if lease else None
        due = draw(st.sampled_from([0, NOW, NOW + 5]))
        spans.append(span(lo, hi, lease=lease, owner=owner, due_at=due, probation=draw(st.integers(0, 1))))
    next_seq = at + draw(st.integers(0, 3))
    return spans, next_seq, next_seq + draw(st.integers(0, 5))


@given(lanes(), st.booleans(), st.integers(0, 12), st.booleans(), st.booleans())
def test_every_plan_keeps_the_promises(
    lane: tuple[list[Span], int, int], strict: bool, room: int, alone: bool, bulk: bool
) -> None:
    spans, next_seq, head = lane
    found = plan(spans, next_seq, head, strict=strict, room=room, alone=alone, bulk=bulk)
    got = [seq for take in found.takes for seq in range(take.lo, take.hi)]
    by_seq = {seq: s for s in spans for seq in range(s.lo, s.hi)}
    assert len(got) == len(set(got)) <= room
    assert got == sorted(got)
    for seq in got:
        if seq < next_seq:
            assert by_seq[seq].lease is None
            assert by_seq[seq].due_at <= NOW
        assert seq < head
    on_probation = [seq for seq in got if seq in by_seq and by_seq[seq].probation]
    assert bulk or not on_probation or (got == on_probation and len(got) == 1 and alone and found.solo)
    if strict and got:
        for seq in (s for s in by_seq if s < got[-1] and s not in got):
            assert by_seq[seq].lease is not None
            assert by_seq[seq].owner == "me"


@pytest.mark.parametrize(
    ("exclusivity", "leased", "exclusive_owner", "sole_owner", "allowed"),
    [
        ("none", 0, None, None, True),
        ("none", 5, None, None, True),
        ("none", 1, "you", None, False),
        ("none", 1, "me", None, True),
        ("partition", 0, None, None, True),
        ("partition", 1, None, "you", False),
        ("partition", 2, None, None, False),
        ("partition", 2, None, "me", True),
        ("partition", 1, "you", None, False),
        ("partition", 1, "me", None, True),
        ("queue", 1, None, None, False),
        ("queue", 0, None, None, True),
    ],
)
def test_claim_enters_a_lane_as_its_exclusivity_allows(
    exclusivity: str, leased: int, exclusive_owner: str | None, sole_owner: str | None, allowed: bool
) -> None:
    entered = may_enter(exclusivity, "me", leased=leased, exclusive_owner=exclusive_owner, sole_owner=sole_owner)
    assert entered is allowed
