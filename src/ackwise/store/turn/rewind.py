"""`on_failure=rewind`: an ack means up to there, and a failure sends everything from it back."""

from __future__ import annotations

from ackwise.core.answers import Settled
from ackwise.core.commands import ByLease, Settlement
from ackwise.core.settlement import Outcome, Verdict
from ackwise.core.spans import Lease, merge_ranges
from ackwise.store.turn import places
from ackwise.store.turn.context import Turn
from ackwise.store.turn.ending import BURIED, RETURNED, Holding, Target, act, spans_of

_MILDER = {Outcome.REJECT: 0, Outcome.RETRY: 1, Outcome.RELEASE: 2, Outcome.ACK: 3}
"""Of two words about one message the harder counts."""


def settle_lane(turn: Turn, held: Holding, run: list[tuple[Settlement, Target]]) -> list[Settled]:
    """An ack means up to there; the lowest failure ends the lease on this partition and everything from it returns."""
    lowest: int | None = None
    answers: dict[int, Settled] = {}
    for index, (entry, target) in sorted(enumerate(run), key=lambda item: (item[1][1].lo, _MILDER[item[1][0].outcome])):
        if lowest is not None and target.lo >= lowest:
            verdict = Verdict.ACKED if entry.outcome is Outcome.ACK else Verdict.RELEASED
            answers[index] = Settled(verdict, 0, True)
        elif entry.outcome is Outcome.ACK:
            whole = Target(target.lease, target.lane, 0, target.hi)
            mine = act(turn, target, entry)
            answers[index] = mine
            if mine.verdict.settled:
                mine.lease_ended = act(turn, whole, entry).lease_ended or mine.lease_ended
        else:
            answers[index] = act(turn, _lowest(turn, held, target), entry)
            if answers[index].verdict.settled:
                lowest = target.lo
    if lowest is not None:
        give_back_partition(turn, held, run[0][1])
        for answer in answers.values():
            answer.lease_ended = answer.lease_ended or run[0][1].lease.ended_at is not None
    return [answers[i] for i in range(len(run))]


def _lowest(turn: Turn, held: Holding, target: Target) -> Target:
    """Of a range that failed only the first outstanding message is to blame."""
    spans = spans_of(turn, held, target)
    if not spans:
        return target
    lo = max(target.lo, spans[0].lo)
    return Target(target.lease, target.lane, lo, lo + 1)


def give_back_partition(turn: Turn, held: Holding, target: Target) -> None:
    """What the lease still holds in the target's partition, in every lane of it, goes back unspent.

    Nobody asked for that message by message: whoever settles one of them later learns that it was lost.
    """
    lease = target.lease
    if not lease.no:
        return
    turn.own_lease(lease)
    lanes = {lane for lane, _, _ in lease.granted}
    cursors = [cursor for lane in sorted(lanes) if (cursor := turn.cursor(lane, held.group.id)) is not None]
    part = next(cursor.part for cursor in cursors if cursor.lane == target.lane)
    give_back = Settlement(selector=ByLease(""), outcome=Outcome.RELEASE)
    for cursor in cursors:
        if cursor.part == part:
            rest = Target(lease, cursor.lane, 0, 1 << 40)
            lost = [(span.lane, span.lo, span.hi) for span in spans_of(turn, held, rest)]
            lease.lost = merge_ranges(lease.lost + lost, places.MOST_LOST_RANGES)
            act(turn, rest, give_back)
    if lease.lost and lease.ended_at is None:
        turn.save_lease(lease)


def fail_lease(turn: Turn, held: Holding, lease: Lease, entry: Settlement) -> Settled:
    """A whole lease fails: in each partition its first message is to blame and the rest goes back."""
    spans = turn.spans("spans_of_lease", lease=lease.no)
    if entry.outcome in (Outcome.ACK, Outcome.RELEASE) or not lease.live(turn.now) or not spans:
        return act(turn, Target(lease, None), entry)
    answer = Settled(Verdict.ALREADY)
    for lane, lo in sorted({span.lane: span.lo for span in reversed(spans)}.items()):
        (mine,) = settle_lane(turn, held, [(entry, Target(lease, lane, lo, lo + 1))])
        if mine.verdict.settled:
            letters = answer.dead_ids + mine.dead_ids
            answer = Settled(mine.verdict, sum(map(len, spans)), True, mine.reason, answer.dead + mine.dead, 0, letters)
    if lease.ended_at is not None:
        # Lane by lane, but all of it at once.
        turn.end_lease(lease, RETURNED if lease.returned else BURIED)
    return answer
