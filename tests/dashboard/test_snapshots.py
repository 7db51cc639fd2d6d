"""Cache of reads: one read for all callers of an interval."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ackwise.core.errors import StoreUnavailable
from ackwise.dashboard.snapshots import MOST_KEYS, Snapshots


class Source:
    """A read that counts its calls and waits until the test lets it end."""

    def __init__(self) -> None:
        self.calls = 0
        self.open = asyncio.Event()
        self.open.set()
        self.problem: Exception | None = None

    async def read(self) -> int:
        self.calls += 1
        number = self.calls
        await self.open.wait()
        if self.problem is not None:
            raise self.problem
        return number


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(work: Any) -> None:
    async def inner() -> None:
        time = Time()
        await work(Snapshots(time), Source(), time)

    asyncio.run(inner())


def test_callers_at_the_same_time_share_one_read() -> None:
    async def work(cache: Snapshots, source: Source, time: Time) -> None:
        source.open.clear()
        callers = [asyncio.ensure_future(cache.get("key", source.read)) for _ in range(100)]
        await asyncio.sleep(0)
        source.open.set()
        assert await asyncio.gather(*callers) == [1] * 100

    run(work)


def test_result_is_read_again_after_its_interval() -> None:
    async def work(cache: Snapshots, source: Source, time: Time) -> None:
        assert await cache.get("key", source.read, 2.0) == 1
        time.now = 1.9
        assert await cache.get("key", source.read, 2.0) == 1
        time.now = 2.1
        assert await cache.get("key", source.read, 2.0) == 2

    run(work)


def test_slow_read_is_fresh_for_longer() -> None:
    async def work(cache: Snapshots, source: Source, time: Time) -> None:
        source.open.clear()
        caller = asyncio.ensure_future(cache.get("key", source.read, 2.0))
        await asyncio.sleep(0)
        time.now = 0.5
        source.open.set()
        await caller
        time.now = 9.0
        assert await cache.get("key", source.read, 2.0) == 1
        time.now = 11.0
        assert await cache.get("key", source.read, 2.0) == 2

    run(work)


def test_failed_read_is_tried_again() -> None:
    async def work(cache: Snapshots, source: Source, time: Time) -> None:
        source.problem = StoreUnavailable()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await cache.get("key", source.read)
        source.problem = None
        assert await cache.get("key", source.read) == 3

    run(work)


def test_caller_that_leaves_does_not_stop_the_read() -> None:
    async def work(cache: Snapshots, source: Source, time: Time) -> None:
        source.open.clear()
        first = asyncio.ensure_future(cache.get("key", source.read))
        second = asyncio.ensure_future(cache.get("key", source.read))
        await asyncio.sleep(0)
        first.cancel()
        source.open.set()
        assert await second == 1

    run(work)


def test_change_is_read_at_once() -> None:
    async def work(cache: Snapshots, source: Source, time: Time) -> None:
        assert await cache.get("key", source.read) == 1
        cache.clear()
        assert await cache.get("key", source.read) == 2

    run(work)


def test_read_of_before_a_change_is_not_shown_after_it() -> None:
    async def work(cache: Snapshots, source: Source, time: Time) -> None:
        source.open.clear()
        old = asyncio.ensure_future(cache.get("key", source.read))
        await asyncio.sleep(0)
        cache.clear()
        new = asyncio.ensure_future(cache.get("key", source.read))
        await asyncio.sleep(0)
        source.open.set()
        assert (await old, await new) == (1, 2)

    run(work)


def test_number_of_kept_results_is_bounded() -> None:
    async def work(cache: Snapshots, source: Source, time: Time) -> None:
        for number in range(2 * MOST_KEYS):
            await cache.get(number, source.read)
        assert len(cache._entries) == MOST_KEYS
        assert await cache.get(2 * MOST_KEYS - 1, source.read) == 2 * MOST_KEYS

    run(work)
