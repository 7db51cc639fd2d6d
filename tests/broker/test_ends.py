"""Drain, close and cancellation during work: nothing is lost, no caller hangs, every error has a type."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from ackwise.broker import AsyncBroker
from ackwise.clock import ManualClock
from ackwise.core.errors import Draining, StoreError, StoreUnavailable
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.queries import ListGroups, ListLeases
from ackwise.store.sqlite import SQLiteStore
from tests.broker.async_runs import on_loop, parked
from tests.broker.both_brokers import AnyBroker, StartBroker
from tests.broker.parked_claims import parked as parked_claim
from tests.broker.watched import Errand, WatchedStore, bodies, claim, push, settle, until
from tests.patience import PATIENCE


def group(store: SQLiteStore) -> tuple[int, int, int]:
    """Acked, held and unread; nothing before the first claim has made the group."""
    found = store.ask(ListGroups(queue="q"))
    return sum(g.acked for g in found), sum(g.held for g in found), sum(g.unread for g in found)


def test_drain_among_busy_claimers_leaves_no_lease_behind(watched_broker: AnyBroker, watched: WatchedStore) -> None:
    """A claim that was under way when the drain began is given back, too."""
    watched_broker.send(push(*map(str, range(500))))
    begun = threading.Barrier(9)

    def work(_: int) -> int:
        begun.wait(PATIENCE)
        acked = 0
        while True:
            handed = watched_broker.claim(claim(3), 1.0)
            if handed.claimed.empty is EmptyReason.DRAINING:
                return acked
            verdicts = [s.verdict.value for s in watched_broker.send(settle(handed.claimed))]
            assert set(verdicts) <= {"acked", "already"}, "only the drain may take a message from its holder"
            acked += verdicts.count("acked")

    with ThreadPoolExecutor(8) as pool:
        workers = [pool.submit(work, number) for number in range(8)]
        begun.wait(PATIENCE)
        until(lambda: group(watched)[0] > 20)
        watched_broker.drain()
        acked = sum(worker.result(PATIENCE) for worker in workers)
    assert watched.ask(ListLeases()) == []
    assert group(watched)[0] == acked


def test_claim_that_commits_while_draining_is_given_back(watched_broker: AnyBroker, watched: WatchedStore) -> None:
    watched_broker.send(push("a"))
    watched.hold()
    late = Errand(lambda: watched_broker.claim(claim()))
    assert watched.waiting.wait(PATIENCE)
    assert watched.ask(ListLeases()) == []
    watched_broker.stop_claims()
    watched.gate.set()
    assert late.result().claimed.empty is EmptyReason.DRAINING
    assert watched.ask(ListLeases()) == []


def test_drain_waits_for_holders(watched_broker: AnyBroker) -> None:
    watched_broker.send(push("a"))
    held = watched_broker.claim(claim()).claimed
    draining = Errand(lambda: watched_broker.drain(grace=PATIENCE))
    until(lambda: watched_broker.claim(claim()).claimed.empty is EmptyReason.DRAINING)
    watched_broker.send(settle(held))
    assert draining.result() == 0


def test_settling_goes_on_while_draining(watched_broker: AnyBroker) -> None:
    watched_broker.send(push("a", "b"))
    held = watched_broker.claim(claim()).claimed
    watched_broker.stop_claims()
    settled, handed = watched_broker.settle_and_claim(settle(held), claim())
    assert [s.verdict.value for s in settled] == ["acked"]
    assert handed.claimed.empty is EmptyReason.DRAINING


def test_close_under_load_gives_every_caller_a_typed_error(url: str, start_broker: StartBroker) -> None:
    broker = start_broker(SQLiteStore(url), background=True)
    broker.send(push("zero"))
    pushed: list[str] = []

    def work(number: int) -> None:
        try:
            for i in range(1_000_000):
                broker.send(push(f"{number}-{i}"))
                pushed.append(f"{number}-{i}")
                if i % 3 == 0:
                    broker.claim(claim(), 0.5)
        except (Draining, StoreError):
            return

    with ThreadPoolExecutor(6) as pool:
        workers = [pool.submit(work, number) for number in range(6)]
        until(lambda: len(pushed) > 50)
        broker.close()
        for worker in workers:
            worker.result(PATIENCE)
    store = SQLiteStore(url)
    assert store.audit() == []
    assert sum(group(store)) >= len(pushed) + 1
    store.close()


def test_settlement_is_answered_when_next_claim_fails(
    watched_broker: AnyBroker, watched: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store breaks between the settlement's turn and the reading of what was claimed."""
    watched_broker.send(push("a", "b"))
    held = watched_broker.claim(claim()).claimed

    def broken(*_: object) -> None:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(watched, "read", broken)
        settled, handed = watched_broker.settle_and_claim(settle(held), claim())
        assert [s.verdict.value for s in settled] == ["acked"]
        assert handed.claimed.empty is EmptyReason.UNAVAILABLE
        with pytest.raises(StoreUnavailable):
            watched_broker.claim(claim())
    again = watched_broker.claim(claim())
    assert bodies(again) == ["b"]
    assert again.claimed.grants[0].failures == 0, "what could not be read was given back unspent"


def test_drain_ends_every_parked_claim(watched_broker: AnyBroker, watched: WatchedStore) -> None:
    watched_broker.send(push("a"))
    held = watched_broker.claim(claim())
    waiting = [parked_claim(watched_broker, claim()) for _ in range(32)]
    assert watched_broker.drain() == 1
    for one in waiting:
        assert one.result().claimed.empty is EmptyReason.DRAINING
    assert held.claimed.lease_id
    assert watched.ask(ListLeases()) == []


def test_turns_continue_after_an_unexpected_error(watched_broker: AnyBroker, watched: WatchedStore) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("a bug")

    good, watched.prepare = watched.prepare, explode  # type: ignore[assignment]
    pushing = [Errand(partial(watched_broker.send, push(f"{i}"))) for i in range(5)]
    for one in pushing:
        with pytest.raises(RuntimeError, match="a bug"):
            one.result()
    watched.prepare = good
    assert watched_broker.send(push("a"))[0].status == "queued"


# cancellation on an event loop


@pytest.mark.parametrize("steps", range(12))
def test_long_poll_cancelled_at_any_step_loses_nothing(watched: WatchedStore, steps: int) -> None:
    """However far it got: parked, riding in a turn, or just answered."""

    async def job(broker: AsyncBroker) -> None:
        await broker.send(push("zero"))
        await broker.send(settle((await broker.claim(claim())).claimed))
        waiting = asyncio.create_task(broker.claim(claim(), PATIENCE))
        await parked(broker, 1)
        pushing = asyncio.create_task(broker.send(push("a")))
        for _ in range(steps):
            await asyncio.sleep(0)
        waiting.cancel()
        await pushing
        (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
        if isinstance(outcome, BaseException):
            handed = await broker.claim(claim(), PATIENCE)
            assert bodies(handed) == ["a"]
            assert handed.claimed.grants[0].failures == 0
        else:
            assert bodies(outcome) == ["a"]

    on_loop(watched, job)


@pytest.mark.parametrize("steps", range(12))
def test_cancelled_waiter_does_not_keep_the_wake_up_of_another(
    watched: WatchedStore, clock: ManualClock, steps: int
) -> None:
    async def job(broker: AsyncBroker) -> None:
        await broker.send(push("a", delay=1_000_000))
        first = asyncio.create_task(broker.claim(claim(), PATIENCE))
        await parked(broker, 1)
        second = asyncio.create_task(broker.claim(claim(), PATIENCE))
        await parked(broker, 2)
        clock.advance(2)
        for _ in range(steps):
            await asyncio.sleep(0)
        first.cancel()
        (outcome,) = await asyncio.gather(first, return_exceptions=True)
        if isinstance(outcome, BaseException):
            assert bodies(await second) == ["a"]
        else:
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)

    on_loop(watched, job)


def test_coroutines_in_a_storm_lose_nothing(watched: WatchedStore) -> None:
    """32 consumers that are cancelled now and then, beside 8 producers."""
    total = 400

    async def job(broker: AsyncBroker) -> None:
        seen: list[str] = []

        async def consume() -> None:
            while True:
                handed = await broker.claim(claim(2), PATIENCE)
                # No interrupt may arrive between here and the answer: what was acked must be counted.
                answers = await asyncio.shield(asyncio.ensure_future(finish(handed)))
                assert answers >= 0

        async def finish(handed: object) -> int:
            acked = await broker.send(settle(handed.claimed))  # type: ignore[attr-defined]
            seen.extend(b for b, s in zip(bodies(handed), acked, strict=True) if s.verdict.value == "acked")  # type: ignore[arg-type]
            return len(acked)

        async def produce(number: int) -> None:
            for i in range(total // 8):
                await broker.send(push(f"{number}-{i}"))

        consumers = [asyncio.create_task(consume()) for _ in range(32)]
        producers = [asyncio.create_task(produce(number)) for number in range(8)]
        victim = 0
        while len(seen) < total:
            await asyncio.sleep(0)
            victim = (victim + 1) % (32 * 20)
            if victim % 20 == 0:
                consumers[victim // 20].cancel()
                consumers[victim // 20] = asyncio.create_task(consume())
        await asyncio.gather(*producers)
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
        assert len(seen) == len(set(seen)) == total

    on_loop(watched, job)
