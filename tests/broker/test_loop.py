"""What only a broker on an event loop does: cancelled and stopped claims, claims of several consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ackwise.broker import AsyncBroker, async_broker
from ackwise.broker.deliveries import deliver
from ackwise.core.answers import Claimed, Handed
from ackwise.core.commands import Claim, ConfigureQueue
from ackwise.core.queries import ListLeases, QueueStats
from ackwise.store.port import Store
from tests.broker.support import CountingStore, ack, claim, payloads, push
from tests.patience import PATIENCE


def on_loop(store: CountingStore, job: Callable[[AsyncBroker], Awaitable[None]]) -> None:
    """Run a job with a broker on a loop of its own, bounded in time."""

    async def run() -> None:
        broker = await AsyncBroker.start(store, background=False)
        try:
            await broker.send(ConfigureQueue(queue="q"))
            await asyncio.wait_for(job(broker), PATIENCE)
        finally:
            await broker.close()

    asyncio.run(run())


async def parked(broker: AsyncBroker, count: int = 1) -> None:
    while len(broker.long_polls) < count:
        await asyncio.sleep(0)


def test_coroutines_share_commits(store: CountingStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        turns = store.turns
        await asyncio.gather(*(broker.send(push(b"%d" % n)) for n in range(32)))
        assert store.turns - turns <= 3
        assert (await broker.ask(QueueStats(queue="q"))).messages == 32

    on_loop(store, job)


@pytest.mark.parametrize("wait", [0.0, PATIENCE])
def test_cancelled_claim_loses_nothing(store: CountingStore, wait: float) -> None:
    """Whether it is cancelled in its turn or while parked, what it would have been handed goes back unspent."""

    async def job(broker: AsyncBroker) -> None:
        if wait == 0.0:
            await broker.send(push(b"1"))
        doomed = asyncio.create_task(broker.claim(claim(), wait))
        if wait:
            await parked(broker)
            pushing = asyncio.create_task(broker.send(push(b"1")))
            while len(broker.long_polls):
                await asyncio.sleep(0)
            doomed.cancel()
            await pushing
        else:
            await asyncio.sleep(0)
            doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        handed = await broker.claim(claim(), PATIENCE)
        assert payloads(handed) == [b"1"]
        assert handed.claimed.grants[0].failures == 0
        await broker.send(ack(handed))

    on_loop(store, job)


def test_claim_cancelled_at_its_timeout_leaves_nothing_held(store: CountingStore) -> None:
    """The timer has taken it out of the waiters already, and no turn has it either."""

    async def job(broker: AsyncBroker) -> None:
        before = set(broker._tasks)
        doomed = asyncio.create_task(broker.claim(claim(), PATIENCE))
        await parked(broker)
        (poll,) = broker.long_polls._polls()
        broker._waits.leave(poll)
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        left = broker._tasks - before
        _, waiting = await asyncio.wait(left, timeout=PATIENCE) if left else (set(), set())
        assert waiting == set()

    on_loop(store, job)


def test_claim_that_is_stopped_has_what_it_was_given(store: CountingStore) -> None:
    """What it acked at once could not be given back."""

    async def job(broker: AsyncBroker) -> None:
        stopped: asyncio.Future[None] = broker.loop.create_future()
        waiting = asyncio.create_task(broker.claim(Claim(queue="q", auto_ack=True), PATIENCE, stopped))
        await parked(broker)
        pushing = asyncio.create_task(broker.send(push(b"1")))
        while len(broker.long_polls):
            await asyncio.sleep(0)
        stopped.set_result(None)
        assert payloads(await waiting) == [b"1"]
        await pushing

    on_loop(store, job)


def test_claim_that_is_stopped_waits_no_longer(store: CountingStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        stopped: asyncio.Future[None] = broker.loop.create_future()
        waiting = asyncio.create_task(broker.claim(claim(), 100 * PATIENCE, stopped))
        await parked(broker)
        stopped.set_result(None)
        assert payloads(await waiting) == []
        await broker.send(push(b"1"))
        assert payloads(await broker.claim(claim())) == [b"1"]

    on_loop(store, job)


def test_claims_of_an_answer_that_fails_all_go_back(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three claims cannot be read: no caller gets the first and the third."""
    numbers = iter(range(3))

    def fail(store: Store, claimed: Claimed) -> Handed:
        if next(numbers) == 1:
            raise MemoryError
        return deliver(store, claimed)

    async def job(broker: AsyncBroker) -> None:
        await broker.send(push(b"1", b"2", b"3"))
        free = Claim(queue="q", most=1, exclusivity="none")
        with monkeypatch.context() as patch:
            patch.setattr(async_broker, "deliver", fail)
            with pytest.raises(MemoryError):
                await broker.claim_each([free] * 3)
        while len(await broker.ask(ListLeases(queue="q"))):
            await asyncio.sleep(0)
        assert payloads(await broker.claim(claim(3))) == [b"1", b"2", b"3"]

    on_loop(store, job)


def test_on_park_runs_when_the_claim_finds_nothing(store: CountingStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        parks: list[int] = []
        await broker.send(push(b"1"))
        handed = await broker.claim(claim(), PATIENCE, on_park=lambda: parks.append(1))
        assert (payloads(handed), parks) == ([b"1"], [])
        waiting = asyncio.create_task(broker.claim(claim(), PATIENCE, on_park=lambda: parks.append(2)))
        await parked(broker)
        assert parks == [2]
        await broker.send(push(b"2"))
        assert payloads(await waiting) == [b"2"]
        assert payloads(await broker.claim(claim(), on_park=lambda: parks.append(3))) == []
        assert parks == [2]

    on_loop(store, job)
