"""Batches claimed ahead and acked together."""

from __future__ import annotations

import asyncio

import pytest

import ackwise
from ackwise import errors
from ackwise.clock import ManualClock
from ackwise.core.commands import Claim, Settle


def numbers(batch: ackwise.Batch) -> list[int]:
    return [delivery.json() for delivery in batch]


def test_prefetched_messages_arrive_once_and_in_order(queue: ackwise.Connection) -> None:
    queue.push_many("q", range(95))
    seen = [n for batch in queue.batches("q", max=10, prefetch=4, stop_when_empty=True) for n in numbers(batch)]
    assert seen == list(range(95))
    stats = queue.stats("q").groups[0]
    assert (stats.acked, stats.lag) == (95, 0)


@pytest.mark.parametrize("url", ["embedded"], indirect=True)
def test_turn_of_prefetch_acks_and_claims_several(queue: ackwise.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.push_many("q", range(80))
    broker = queue._transport
    turns: list[list[type]] = []
    run_turn = broker._run_turn  # type: ignore[attr-defined]

    def counted(commands: list[object]) -> object:
        if any(isinstance(c, Claim) for c in commands):  # the broker's own duties go the same way
            turns.append([type(c) for c in commands])
        return run_turn(commands)

    monkeypatch.setattr(broker, "_run_turn", counted)
    for _ in queue.batches("q", max=10, prefetch=4, stop_when_empty=True):
        pass
    assert turns[0] == [Claim] * 4
    assert turns[1] == [Settle] + [Claim] * 4


def test_leaving_early_acks_the_finished_and_returns_the_rest(queue: ackwise.Connection) -> None:
    queue.push_many("q", range(40))
    loop = queue.batches("q", max=10, prefetch=4, stop_when_empty=True)
    first, second = next(loop), next(loop)
    loop.close()
    stats = queue.stats("q").groups[0]
    assert (stats.acked, stats.held) == (10, 30)
    assert first.lease_id != second.lease_id
    again = queue.claim("q", max=100)
    assert numbers(again) == list(range(20, 40))
    assert {delivery.failures for delivery in again} == {0}
    second.ack()


def test_settled_batch_keeps_its_settlement(queue: ackwise.Connection) -> None:
    queue.push_many("q", range(20))
    for batch in queue.batches("q", max=10, prefetch=2, stop_when_empty=True):
        if numbers(batch)[0] == 0:
            batch.reject("not this one")
    stats = queue.stats("q").groups[0]
    assert (stats.acked, stats.dead) == (10, 10)


def test_leases_in_hand_are_kept_alive(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.create_queue("q", lease_seconds=30)
    queue.push_many("q", range(40))
    for _ in queue.batches("q", max=10, prefetch=4, stop_when_empty=True):
        clock.advance(20)
    assert queue.stats("q").groups[0].acked == 40


def test_lost_lease_is_said(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.create_queue("q", lease_seconds=30)
    queue.push_many("q", range(20))
    loop = queue.batches("q", max=10, prefetch=2, stop_when_empty=True)
    next(loop)
    clock.advance(40)
    with pytest.raises(errors.LeaseLost):
        next(loop)


def test_prefetch_is_a_number(queue: ackwise.Connection) -> None:
    with pytest.raises(errors.BadInput):
        next(queue.batches("q", prefetch=0))


def test_async_prefetch_yields_all_messages_in_order(url: str) -> None:
    async def run() -> list[int]:
        async with ackwise.connect_async(url) as queue:
            await queue.push_many("q", range(35))
            return [
                delivery.json()
                async for batch in queue.batches("q", max=10, prefetch=3, stop_when_empty=True)
                for delivery in batch
            ]

    assert asyncio.run(run()) == list(range(35))
