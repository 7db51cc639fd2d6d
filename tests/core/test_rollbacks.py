"""Rollbacks: which refusals undo a call, and which calls were done before."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import rollbacks
from ackwise.core.answers import Settled
from ackwise.core.ids import GroupId, LaneId, LeaseNo, Micros
from ackwise.core.lane_range import LaneRange
from ackwise.core.settlement import Outcome, Verdict
from ackwise.core.spans import RETURNED, Lease, LeasedRange

LANE = LaneId(1)
REFUSED = (Verdict.STALE, Verdict.UNKNOWN, Verdict.ROLLED_BACK)


def lease(**fields: Any) -> Lease:
    return Lease(
        LeaseNo(1), 2, 1, GroupId(1), "me", "here", "none", 0, 100, Micros(0), [LaneRange(LANE, 0, 10)], **fields
    )


@pytest.mark.parametrize("verdict", Verdict)
def test_refusal_undoes_an_atomic_call(verdict: Verdict) -> None:
    assert rollbacks.undoes_settle(Settled(verdict), strict=True) == (verdict in REFUSED)
    assert rollbacks.undoes_settle(Settled(verdict, unacked=True), strict=False) == (verdict in REFUSED)
    assert rollbacks.undoes_settle(Settled(verdict, unacked=True), strict=True)


def test_rolled_back_call_keeps_its_refusals() -> None:
    answers = [Settled(verdict) for verdict in (Verdict.ACKED, Verdict.STALE, Verdict.ALREADY, Verdict.DEAD)]
    verdicts = [answer.verdict.value for answer in rollbacks.rolled_back(answers)]
    assert verdicts == ["rolled_back", "stale", "already", "rolled_back"]


@pytest.mark.parametrize(
    ("answer", "outcome", "undone_with"),
    [
        (Settled(Verdict.ACKED), Outcome.ACK, ()),
        (Settled(Verdict.STALE), Outcome.ACK, ("ok", "acks", "fail")),
        (Settled(Verdict.UNKNOWN), Outcome.RETRY, ("ok", "acks", "fail")),
        (Settled(Verdict.ALREADY), Outcome.ACK, ("fail",)),
        (Settled(Verdict.ALREADY), Outcome.RETRY, ("acks", "fail")),
        (Settled(Verdict.ALREADY, unacked=True), Outcome.ACK, ("ok", "fail")),
    ],
)
def test_transaction_is_undone_as_on_already_says(answer: Settled, outcome: Outcome, undone_with: object) -> None:
    ways: tuple[rollbacks.OnAlready, ...] = ("ok", "acks", "fail")
    assert tuple(way for way in ways if rollbacks.undoes_transaction(answer, outcome, way)) == undone_with


@pytest.mark.parametrize(
    ("answers", "done"),
    [
        ([], True),
        ([Settled(Verdict.ALREADY)], True),
        ([Settled(Verdict.ALREADY), Settled(Verdict.ALREADY, unacked=True)], False),
        ([Settled(Verdict.ALREADY), Settled(Verdict.ACKED)], False),
        ([Settled(Verdict.STALE)], False),
    ],
)
def test_call_was_done_before_if_all_is_already(answers: list[Settled], done: bool) -> None:
    assert rollbacks.done_before(answers) is done


REWOUND = lease(returned=1, lost=[LaneRange(LANE, 3, 10)])
"""The first two messages are acked, the third failed and returned those behind it."""


def at(seq: int, holder: Lease = REWOUND) -> LeasedRange:
    return LeasedRange(holder, LANE, seq, seq + 1)


@pytest.mark.parametrize(
    ("entries", "verdicts"),
    [
        ([("retry", at(2), "already"), ("ack", at(5), "stale")], ["already", "already"]),
        ([("ack", at(5), "stale"), ("retry", at(2), "already")], ["already", "already"]),
        ([("ack", at(1), "already"), ("ack", at(5), "stale")], ["already", "stale"]),
        ([("retry", at(1), "already"), ("ack", at(5), "stale")], ["already", "stale"]),
        ([("retry", None, "already"), ("ack", at(5), "stale")], ["already", "stale"]),
        ([("retry", at(2, lease()), "already"), ("ack", at(5, lease()), "stale")], ["already", "stale"]),
        ([("retry", LeasedRange(lease(returned=1, end_kind=RETURNED), None), "stale")], ["already"]),
        ([("ack", LeasedRange(lease(returned=1, end_kind=RETURNED), None), "stale")], ["stale"]),
        ([("retry", LeasedRange(lease(returned=1, end_kind="expired"), None), "stale")], ["stale"]),
    ],
)
def test_repeated_call_finds_what_its_failure_returned(
    entries: list[tuple[str, LeasedRange | None, str]], verdicts: list[str]
) -> None:
    outcomes = [Outcome(outcome) for outcome, _, _ in entries]
    ranges = [leased for _, leased, _ in entries]
    answers = [Settled(Verdict(verdict)) for _, _, verdict in entries]
    assert [answer.verdict for answer in rollbacks.repeated_answers(outcomes, ranges, answers)] == verdicts
