"""Settles neighbouring acks of a call as one range.

Only speed depends on this module: the answers and the rows are the same as those of `settle_each`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ackwise.core.answers import Settled
from ackwise.core.commands import Settlement
from ackwise.core.ids import GroupId, LaneId
from ackwise.core.settlement import Outcome
from ackwise.core.spans import NumberedRange
from ackwise.engine.span_settlement import Answers, SpanSettlement, settle_each
from ackwise.engine.turn import Turn

MANY_RUNS = 3
"""Number of runs from which on acks are sorted by position to find more neighbours."""


def settle_in_runs(
    turn: Turn, entries: Sequence[Settlement], ranges: Sequence[NumberedRange], answers: Answers
) -> None:
    """Settle entries. Reads and writes the spans of each lane once for all of them."""
    for group in _by_lane(ranges):
        settlement = SpanSettlement.of(turn, group[0][1].lease, [leased for _, leased in group])
        if settlement is None:
            settle_each(turn, entries, group, answers)
            continue
        for run in _runs(entries, group):
            _settle_run(turn, settlement, entries, run, answers)
        settlement.close()


def _by_lane(ranges: Sequence[NumberedRange]) -> Iterator[list[NumberedRange]]:
    """Groups of entries with the same lane and lease.

    Grouping reorders only entries of different lanes. An entry for a whole lease ends all groups. An entry for another
    lease in a lane ends the group of that lane.
    """
    groups: dict[tuple[GroupId, LaneId], list[NumberedRange]] = {}
    for numbered in ranges:
        leased = numbered[1]
        if leased.lane is None:
            yield from groups.values()
            groups.clear()
            yield [numbered]
            continue
        key = (leased.lease.grp, leased.lane)
        group = groups.get(key)
        if group is None:
            groups[key] = [numbered]
        elif group[0][1].lease.no == leased.lease.no:
            group.append(numbered)
        else:
            yield group
            groups[key] = [numbered]
    yield from groups.values()


def _runs(entries: Sequence[Settlement], group: list[NumberedRange]) -> list[list[NumberedRange]]:
    """Runs of neighbours. Acks are sorted by position, unless two entries name the same message."""
    runs = _neighbours(entries, group)
    if len(runs) < MANY_RUNS or {entries[run[0][0]].outcome for run in runs} != {Outcome.ACK}:
        return runs
    ordered = sorted(group, key=lambda numbered: numbered[1].lo)
    overlap = any(before.hi > after.lo for (_, before), (_, after) in pairwise(ordered))
    return runs if overlap else _neighbours(entries, ordered)


def _neighbours(entries: Sequence[Settlement], ranges: list[NumberedRange]) -> list[list[NumberedRange]]:
    """Entries in their order. Acks share a run if each ack starts where the previous ack ends."""
    runs = [ranges[:1]]
    for before, after in pairwise(ranges):
        adjacent = before[1].hi == after[1].lo
        if adjacent and entries[before[0]].outcome is entries[after[0]].outcome is Outcome.ACK:
            runs[-1].append(after)
        else:
            runs.append([after])
    return runs


def _settle_run(
    turn: Turn, settlement: SpanSettlement, entries: Sequence[Settlement], run: list[NumberedRange], answers: Answers
) -> None:
    """Settle a run as one range if one span of a live lease contains it, or else entry by entry."""
    first = run[0][1]
    if len(run) > 1 and first.lease.live(turn.now):
        whole = first.part(first.lo, run[-1][1].hi)
        if settlement.in_one_span(whole):
            together = settlement.settle(whole, entries[run[0][0]])
            for number, leased in run:
                answers[number] = Settled(together.verdict, leased.hi - leased.lo, failures=together.failures)
            return
    for number, leased in run:
        answers[number] = settlement.settle(leased, entries[number])
