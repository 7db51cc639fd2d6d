"""The same on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from ackwise.broker import AsyncBroker
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Claim, ConfigureQueue, Push
from ackwise.core.errors import BadInput, Draining
from ackwise.core.messages import NewMessage
from ackwise.core.queries import QueueStats
from ackwise.core.settlement import Verdict
from ackwise.store.clock import ManualClock
from tests.broker.support import CountingStore, ack, claim, payloads, push
from tests.broker.watched import PATIENCE


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
    while len(broker.waiters) < count:
        await asyncio.sleep(0)


def test_a_waiter_gets_what_is_pushed_later(store: CountingStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        waiting = asyncio.create_task(broker.claim(claim(), PATIENCE))
        await parked(broker)
        turns = store.turns
        await broker.send(push(b"1"))
        assert payloads(await waiting) == [b"1"]
        assert store.turns == turns + 1

    on_loop(store, job)


def test_a_waiter_wakes_when_the_clock_moves(store: CountingStore, clock: ManualClock) -> None:
    async def job(broker: AsyncBroker) -> None:
        await broker.send(push(b"later", delay=60_000_000))
        waiting = asyncio.create_task(broker.claim(claim(), PATIENCE))
        await parked(broker)
        clock.advance(61)
        assert payloads(await waiting) == [b"later"]

    on_loop(store, job)


def test_coroutines_share_commits(store: CountingStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        turns = store.turns
        await asyncio.gather(*(broker.send(push(b"%d" % n)) for n in range(32)))
        assert store.turns - turns <= 3
        assert (await broker.ask(QueueStats(queue="q"))).messages == 32

    on_loop(store, job)


def test_a_bad_command_fails_nobody_else(store: CountingStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        bad = Push(queue="q", messages=[NewMessage("text")])  # type: ignore[arg-type]
        results = await asyncio.gather(
            broker.send(push(b"1")), broker.send(bad), broker.send(push(b"2")), return_exceptions=True
        )
        assert isinstance(results[1], BadInput)
        assert (await broker.ask(QueueStats(queue="q"))).messages == 2

    on_loop(store, job)


@pytest.mark.parametrize("wait", [0.0, PATIENCE])
def test_a_cancelled_claim_loses_nothing(store: CountingStore, wait: float) -> None:
    """Whether it is cancelled in its turn or while parked, what it would have been handed goes back unspent."""

    async def job(broker: AsyncBroker) -> None:
        if wait == 0.0:
            await broker.send(push(b"1"))
        doomed = asyncio.create_task(broker.claim(claim(), wait))
        if wait:
            await parked(broker)
            pushing = asyncio.create_task(broker.send(push(b"1")))
            while len(broker.waiters):
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


def test_a_claim_cancelled_as_its_time_is_up_leaves_nothing_behind(store: CountingStore) -> None:
    """The timer has taken it out of the waiters already, and no turn has it either."""

    async def job(broker: AsyncBroker) -> None:
        before = set(broker._tasks)
        doomed = asyncio.create_task(broker.claim(claim(), PATIENCE))
        await parked(broker)
        (slot,) = [slot for wants in broker.waiters._parked.values() for some in wants.values() for slot in some]
        broker._leave(slot)
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        left = broker._tasks - before
        _, waiting = await asyncio.wait(left, timeout=5) if left else (set(), set())
        assert waiting == set()

    on_loop(store, job)


def test_drain_and_close(store: CountingStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        await broker.send(push(b"1", b"2"))
        await broker.claim(claim())
        waiting = asyncio.create_task(broker.claim(Claim(queue="q", group="other", most=1, start="new"), PATIENCE))
        await parked(broker)
        assert await broker.drain() == 1
        assert (await waiting).claimed.empty is EmptyReason.DRAINING
        await broker.close()
        with pytest.raises(Draining):
            await broker.send(push(b"3"))

    on_loop(store, job)


def test_settle_and_claim_share_a_turn(store: CountingStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        await broker.send(push(b"1", b"2", b"3"))
        first = await broker.claim(claim())
        turns = store.turns
        settled, second = await broker.settle_and_claim(ack(first), claim(), 0.0)
        assert (settled[0].count, payloads(second)) == (1, [b"2"])
        settled, ahead = await broker.claim_ahead(ack(second), claim(), 4)
        assert [payloads(one) for one in ahead] == [[b"3"]]
        assert store.turns == turns + 2

    on_loop(store, job)


def test_claims_ahead_with_a_key_are_the_same_claims_again(store: CountingStore) -> None:
    """Also with the settlement that went with them, when the answer to both got lost."""

    async def job(broker: AsyncBroker) -> None:
        await broker.send(push(b"1", b"2", b"3", b"4"))
        first = await broker.claim(claim())
        settle, keyed = ack(first), msgspec.structs.replace(claim(), key="mine")
        settled, ahead = await broker.claim_ahead(settle, keyed, 2)
        again, same = await broker.claim_ahead(settle, keyed, 2)
        assert [one.verdict for one in (*settled, *again)] == [Verdict.ACKED, Verdict.ALREADY]
        assert [payloads(one) for one in ahead] == [payloads(one) for one in same] == [[b"2"], [b"3"]]
        (stale, *_), (held, *_) = await broker.send(ack(ahead[0])), await broker.send(ack(same[0]))
        assert (stale.verdict, held.verdict) == (Verdict.STALE, Verdict.ACKED)
        assert payloads(await broker.claim(claim())) == [b"4"]

    on_loop(store, job)


def test_a_claim_that_is_stopped_has_what_it_was_given(store: CountingStore) -> None:
    """What it acked at once could not be given back."""

    async def job(broker: AsyncBroker) -> None:
        stopped: asyncio.Future[None] = broker.loop.create_future()
        waiting = asyncio.create_task(broker.claim(Claim(queue="q", auto_ack=True), PATIENCE, stopped))
        await parked(broker)
        pushing = asyncio.create_task(broker.send(push(b"1")))
        while len(broker.waiters):
            await asyncio.sleep(0)
        stopped.set_result(None)
        assert payloads(await waiting) == [b"1"]
        await pushing

    on_loop(store, job)


def test_a_claim_that_is_stopped_waits_no_longer(store: CountingStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        stopped: asyncio.Future[None] = broker.loop.create_future()
        waiting = asyncio.create_task(broker.claim(claim(), 100 * PATIENCE, stopped))
        await parked(broker)
        stopped.set_result(None)
        assert payloads(await waiting) == []
        await broker.send(push(b"1"))
        assert payloads(await broker.claim(claim())) == [b"1"]

    on_loop(store, job)


def test_a_claim_that_waits_takes_nothing_from_who_asked_again(store: CountingStore) -> None:
    """Its caller may have gone long ago, and have the messages from elsewhere."""

    async def job(broker: AsyncBroker) -> None:
        keyed = msgspec.structs.replace(claim(), key="mine")
        polls = [asyncio.create_task(broker.claim(keyed, PATIENCE)) for _ in range(2)]
        await parked(broker, 2)
        await broker.send(push(b"1"))
        done, (other,) = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        (given,) = (one.result() for one in done)
        await broker.send(push(b"2"))
        assert (await other).claimed.empty is EmptyReason.ENDED
        (settled,) = await broker.send(ack(given))
        assert (payloads(given), settled.verdict) == ([b"1"], Verdict.ACKED)
        assert payloads(await broker.claim(claim())) == [b"2"]

    on_loop(store, job)


def test_whoever_asks_again_gets_what_a_claim_that_waited_was_given(store: CountingStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        keyed = msgspec.structs.replace(claim(), key="mine")
        waiting = asyncio.create_task(broker.claim(keyed, PATIENCE))
        await parked(broker)
        await broker.send(push(b"1"))
        given, again = await waiting, await broker.claim(keyed, PATIENCE)
        assert payloads(given) == payloads(again) == [b"1"]
        (stale,), (held,) = await broker.send(ack(given)), await broker.send(ack(again))
        assert (stale.verdict, held.verdict) == (Verdict.STALE, Verdict.ACKED)

    on_loop(store, job)
