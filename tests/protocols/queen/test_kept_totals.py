"""Totals of a store with many queues are counted once for many requests."""

from __future__ import annotations

import asyncio

import pytest

from ackwise.protocols.queen import kept_totals
from ackwise.protocols.queen.kept_totals import (
    LONGEST,
    MANY,
    MOST_KEPT,
    SHORTEST,
    CountedTotals,
    KeptTotals,
    Key,
)
from tests.protocols.queen.queen_api import QueenApi

RESOURCES = "/api/v1/resources"


class Counter:
    """A count that takes `seconds` of a clock. It waits for `gate`."""

    def __init__(self, queues: int, seconds: float = 0.0) -> None:
        self.now = 0.0
        self.queues, self.seconds, self.counts = queues, seconds, 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.totals = KeptTotals(lambda: self.now)

    async def count(self) -> CountedTotals:
        await self.gate.wait()
        self.counts += 1
        self.now += self.seconds
        return CountedTotals(self.queues, self.counts)

    async def get(self, key: Key = ("all",), *, fresh: bool = False) -> tuple[int, float]:
        value, age = await self.totals.get(key, self.count, fresh=fresh)
        return value, age


def test_totals_of_few_queues_are_counted_each_time() -> None:
    async def ask() -> None:
        counter = Counter(MANY)
        assert [await counter.get() for _ in range(3)] == [(1, 0), (2, 0), (3, 0)]

    asyncio.run(ask())


@pytest.mark.parametrize(("seconds", "keep"), [(0.01, SHORTEST), (2.0, 20.0), (50.0, LONGEST)])
def test_totals_of_many_queues_are_kept(seconds: float, keep: float) -> None:
    async def ask() -> None:
        counter = Counter(MANY + 1, seconds)
        assert await counter.get() == (1, 0)
        counter.now += keep - 0.5
        value, age = await counter.get()
        assert (value, round(age, 3)) == (1, round(keep - 0.5, 3))
        assert await counter.get(("other",)) == (2, 0)
        assert await counter.get(fresh=True) == (3, 0)
        counter.now += keep
        assert await counter.get() == (4, 0)

    asyncio.run(ask())


def test_requests_at_the_same_time_share_a_count() -> None:
    async def ask() -> None:
        counter = Counter(MANY + 1)
        await counter.get()
        counter.now += LONGEST
        counter.gate.clear()
        left, *others = [asyncio.ensure_future(counter.get()) for _ in range(5)]
        await asyncio.sleep(0)
        left.cancel()
        counter.gate.set()
        assert await asyncio.gather(*others) == [(2, 0)] * 4

    asyncio.run(ask())


def test_kept_totals_are_bounded() -> None:
    async def ask() -> None:
        counter = Counter(MANY + 1)
        for number in range(MOST_KEPT + 1):
            await counter.get((f"tag-{number}",))
        assert await counter.get(("tag-0",)) == (MOST_KEPT + 2, 0)
        assert (await counter.get((f"tag-{MOST_KEPT}",)))[0] == MOST_KEPT + 1

    asyncio.run(ask())


def test_overview_of_many_queues_has_its_age_until_refreshed(queen: QueenApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_totals, "MANY", 1)
    monkeypatch.setattr(kept_totals, "SHORTEST", LONGEST)
    queen.push("a", 1)
    queen.push("b", 1)
    for name in ("overview", "namespaces"):
        queen.get(f"{RESOURCES}/{name}")
    queen.push("c", 1)
    shown = queen.get(f"{RESOURCES}/overview")
    assert (shown["queues"], shown["messages"]["total"]) == (2, 2)
    assert 0 <= shown["statsAge"] < LONGEST
    status, refreshed = queen.call("POST", "/api/v1/stats/refresh")
    assert (status, refreshed["queues"], refreshed["statsAge"]) == (200, 3, 0)
    assert queen.get(f"{RESOURCES}/overview")["queues"] == 3
    assert queen.get(f"{RESOURCES}/overview", namespace="none")["queues"] == 0
