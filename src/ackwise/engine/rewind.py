"""`on_failure=rewind`: an ack covers everything before it, a failure returns everything after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ackwise.core.answers import Settled
from ackwise.core.commands import ByLease, Settlement
from ackwise.core.lane_range import BEYOND, merge_ranges
from ackwise.core.settlement import RETURNED_AS, Outcome
from ackwise.core.spans import BURIED, RETURNED, LeasedRange, NumberedRange
from ackwise.engine import cursors as engine_cursors
from ackwise.engine.span_settlement import Answers, settle_range, spans_in
from ackwise.engine.turn import Turn

_MILDER = {Outcome.REJECT: 0, Outcome.RETRY: 1, Outcome.RELEASE: 2, Outcome.ACK: 3}
"""Order of outcomes for the same message: the hardest comes first and counts."""
_GIVE_BACK = Settlement(selector=ByLease(""), outcome=Outcome.RELEASE)


def settle_lanes(turn: Turn, entries: Sequence[Settlement], ranges: Sequence[NumberedRange], answers: Answers) -> None:
    """Settle entries whose failures rewind their lane."""
    for numbered in _by_lane(ranges):
        number, first = numbered[0]
        if first.lane is None:
            answers[number] = _settle_lease(turn, first, entries[number])
        else:
            answers.update(_settle_lane(turn, entries, numbered))


def _by_lane(ranges: Sequence[NumberedRange]) -> Iterable[list[NumberedRange]]:
    """Entries of the same lane and lease, which are settled together. A whole lease is settled on its own."""
    lanes: dict[tuple[int, ...], list[NumberedRange]] = {}
    for number, leased in ranges:
        where = (-1, number) if leased.lane is None else (leased.lane,)
        lanes.setdefault((leased.lease.no, leased.lease.grp, *where), []).append((number, leased))
    return lanes.values()


def _settle_lane(turn: Turn, entries: Sequence[Settlement], ranges: Sequence[NumberedRange]) -> Answers:
    """Settle entries of one lane. An ack covers all messages up to it. A failure returns the messages after it."""
    failed: LeasedRange | None = None
    answers: Answers = {}
    for number, leased in sorted(ranges, key=lambda numbered: (numbered[1].lo, _MILDER[entries[numbered[0]].outcome])):
        entry = entries[number]
        if failed is not None and leased.lo >= failed.lo:
            answers[number] = Settled(RETURNED_AS[entry.outcome])
        elif entry.outcome is Outcome.ACK:
            answers[number] = _ack(turn, leased, entry)
        else:
            answers[number] = settle_range(turn, _first_outstanding(turn, leased), entry)
            failed = leased if answers[number].verdict.settled else failed
    if failed is not None:
        give_back_partition(turn, failed)
    return answers


def _ack(turn: Turn, leased: LeasedRange, entry: Settlement) -> Settled:
    """Ack a range and the messages before it. Only the messages of the range count in the answer."""
    answer = settle_range(turn, leased, entry)
    if answer.verdict.settled:
        settle_range(turn, leased.part(0, leased.hi), entry)
    return answer


def _first_outstanding(turn: Turn, leased: LeasedRange) -> LeasedRange:
    """The first outstanding message of a failed range. Only this message counts the failure."""
    spans = spans_in(turn, leased)
    if not spans:
        return leased
    lo = max(leased.lo, spans[0].lo)
    return leased.part(lo, lo + 1)


def give_back_partition(turn: Turn, leased: LeasedRange) -> None:
    """Release all messages that the lease still holds in the partition of this range, without a failure.

    The lease records them as lost, so a later settlement of one of them is `stale`.
    """
    lease = leased.lease
    if not lease.no:
        return
    turn.own_lease(lease)
    lanes = {lane for lane, _, _ in lease.granted}
    cursors = [cursor for lane in sorted(lanes) if (cursor := turn.cursor(lane, lease.grp)) is not None]
    part = next(cursor.part for cursor in cursors if cursor.lane == leased.lane)
    for cursor in cursors:
        if cursor.part == part:
            rest = LeasedRange(lease, cursor.lane, 0, BEYOND, late=leased.late)
            lost = [span.range for span in spans_in(turn, rest)]
            lease.lost = merge_ranges(lease.lost + lost, engine_cursors.MOST_LOST_RANGES)
            settle_range(turn, rest, _GIVE_BACK)
    if lease.lost and lease.ended_at is None:
        turn.save_lease(lease)


def _settle_lease(turn: Turn, leased: LeasedRange, entry: Settlement) -> Settled:
    """Settle a whole lease. If it fails, the first message of each lane counts the failure and the others return."""
    lease = leased.lease
    spans = turn.spans("spans_of_lease", lease=lease.no)
    if entry.outcome in (Outcome.ACK, Outcome.RELEASE) or not lease.live(turn.now) or not spans:
        return settle_range(turn, leased, entry)
    firsts = {span.lane: span.lo for span in reversed(spans)}
    lanes = [LeasedRange(lease, lane, lo, lo + 1) for lane, lo in sorted(firsts.items())]
    answers = [_settle_lane(turn, [entry], [(0, first)])[0] for first in lanes]
    if lease.ended_at is not None:
        # The lanes failed one by one, but the lease ended as a whole.
        turn.end_lease(lease, RETURNED if lease.returned else BURIED)
    # A failure also returns the other lanes of its partition. Those lanes are refused.
    failed = [answer for answer in answers if answer.verdict.settled]
    letters = [letter for answer in failed for letter in answer.dead_ids]
    dead = sum(answer.dead for answer in failed)
    return Settled(failed[-1].verdict, sum(map(len, spans)), reason=failed[-1].reason, dead=dead, dead_ids=letters)
