"""Ranges of lanes dealt out to Spark's tasks."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import msgspec
from pyspark.sql.datasource import InputPartition


class Stretch(msgspec.Struct, frozen=True):
    """Messages [lo, hi) of one lane that are alike."""

    lane: int
    queue: str
    partition: str
    partition_id: str
    priority: int
    lo: int
    hi: int
    attempt: int | None = None

    def __len__(self) -> int:
        return self.hi - self.lo


class Work(InputPartition):
    """What one task reads; `lease` is the number and tag under which it is held, None for a plain read."""

    def __init__(self, stretches: list[Stretch], lease: tuple[int, int] | None = None) -> None:
        self.stretches, self.lease = stretches, lease


def dealt(stretches: Iterable[Stretch], tasks: int, *, split: bool) -> list[list[Stretch]]:
    """At most `tasks` piles of about the same size; a task costs tens of milliseconds, however little it has to do.

    Without `split` a lane stays in one pile, so that its messages are worked on one after the other.
    """
    found = [one for one in stretches if len(one)]
    total = sum(map(len, found))
    if not total:
        return []
    share = -(-total // tasks)
    lanes: dict[tuple[int, int], list[Stretch]] = {}
    for at, one in enumerate(_cut(found, share) if split else found):
        lanes.setdefault((one.lane, at if split else 0), []).append(one)
    piles: list[tuple[int, int, list[Stretch]]] = [(0, number, []) for number in range(tasks)]
    for group in sorted(lanes.values(), key=lambda group: -sum(map(len, group))):
        size, number, pile = heapq.heappop(piles)
        heapq.heappush(piles, (size + sum(map(len, group)), number, pile + group))
    ordered = sorted(piles, key=lambda pile: pile[1])
    return [sorted(pile, key=lambda one: (one.lane, one.lo)) for _, _, pile in ordered if pile]


def _cut(stretches: list[Stretch], share: int) -> Iterable[Stretch]:
    for one in stretches:
        for lo in range(one.lo, one.hi, share):
            yield msgspec.structs.replace(one, lo=lo, hi=min(one.hi, lo + share))
