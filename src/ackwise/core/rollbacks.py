"""Decides what a refused settlement means for its call: rolled back, or done by an earlier call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ackwise.core.answers import Settled
from ackwise.core.ids import LaneId, LeaseNo
from ackwise.core.settlement import Outcome, Verdict
from ackwise.core.spans import BURIED, RETURNED, LeasedRange

OnAlready = Literal["ok", "acks", "fail"]


def undoes_settle(answer: Settled, *, strict: bool) -> bool:
    """Whether an answer undoes an atomic call. With `strict`, so does an ack of a message that ended without an ack."""
    return _refused(answer) or (strict and answer.unacked)


def rolled_back(answers: Sequence[Settled]) -> list[Settled]:
    """The answers of an atomic call after its settlements are undone. Refusals keep their verdicts."""
    return [Settled(Verdict.ROLLED_BACK) if answer.verdict.settled else answer for answer in answers]


def undoes_transaction(answer: Settled, outcome: Outcome, on_already: OnAlready) -> bool:
    """Whether an answer undoes a transaction: a refusal, or `already` where the transaction must settle itself."""
    if _refused(answer) or (answer.unacked and on_already != "acks"):
        return True
    if answer.verdict is not Verdict.ALREADY or on_already == "ok":
        return False
    return on_already == "fail" or outcome is not Outcome.ACK


def _refused(answer: Settled) -> bool:
    return not answer.verdict.settled and answer.verdict is not Verdict.ALREADY


def done_before(answers: Sequence[Settled]) -> bool:
    """Whether an earlier call settled all entries with the outcomes of this call."""
    return all(answer.verdict is Verdict.ALREADY and not answer.unacked for answer in answers)


# repeated calls where a failure rewinds the lane


def repeated_answers(
    outcomes: Sequence[Outcome], ranges: Sequence[LeasedRange | None], answers: Sequence[Settled]
) -> list[Settled]:
    """Answers of a repeated call, with `already` for `stale` entries that a failure of the first call returned.

    The first call reported these entries as done. `ranges` has the range of each entry whose lease rewinds.
    """
    returned = _returned_by_rewind(outcomes, ranges, answers)
    return [Settled(Verdict.ALREADY) if index in returned else answer for index, answer in enumerate(answers)]


def _returned_by_rewind(
    outcomes: Sequence[Outcome], ranges: Sequence[LeasedRange | None], answers: Sequence[Settled]
) -> set[int]:
    """Numbers of `stale` entries whose messages an earlier failure of the same call returned."""
    first_failed: dict[tuple[LeaseNo, LaneId | None], int] = {}
    stale: list[tuple[int, LeasedRange]] = []
    for index, (outcome, leased, answer) in enumerate(zip(outcomes, ranges, answers, strict=True)):
        if leased is None or not leased.lease.returned:
            continue
        if answer.verdict is Verdict.STALE:
            stale.append((index, leased))
        elif answer.verdict is Verdict.ALREADY and outcome is not Outcome.ACK and _returned_followers(leased):
            where = (leased.lease.no, leased.lane)
            first_failed[where] = min(leased.lo, first_failed.get(where, leased.lo))
    return {index for index, leased in stale if _was_returned(outcomes[index], leased, first_failed)}


def _returned_followers(failed: LeasedRange) -> bool:
    """Whether the next granted message after this failed entry was returned.

    If the message was acked before another entry failed, this entry did not rewind the lane.
    """
    lane, lease = failed.lane, failed.lease
    behind = (max(lo, failed.hi) for where, lo, hi in lease.granted if where == lane and hi > failed.hi)
    following = next(behind, None)
    return lane is not None and following is not None and lease.was_lost(lane, following)


def _was_returned(
    outcome: Outcome, leased: LeasedRange, first_failed: dict[tuple[LeaseNo, LaneId | None], int]
) -> bool:
    if leased.lane is None:
        # The whole lease failed at once: each partition returned the messages behind its first one.
        return outcome is not Outcome.ACK and leased.lease.end_kind in (RETURNED, BURIED)
    first = first_failed.get((leased.lease.no, leased.lane))
    return first is not None and first <= leased.lo
