"""Several servers, tries again, the circuit breaker, and acks that travel together."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, Literal

import pytest

from ackwise import errors
from ackwise.client.aio.lease_keeper import AsyncLeaseKeeper
from ackwise.client.http_adapters.reply import Broken, Unsent
from ackwise.client.resilience import CallRetries, CircuitBreaker, Resilience
from ackwise.clock import ManualClock
from ackwise.core.commands import ByTransaction
from ackwise.fluent import AsyncClient, Client, Message
from tests.client.flaky import Fault, Flaky, refusal
from tests.patience import PATIENCE
from tests.server.running import Running

LOST: Literal["lose the request"] = "lose the request"
SLOW = Resilience(pauses=(1000,))
"""Who tries again is not done within a test."""
FAST = Resilience(pauses=(0.001, 0.001, 0.001), failures=5, rest=60)


@pytest.fixture
def doors(store_url: str, clock: ManualClock) -> Iterator[tuple[Flaky, Flaky]]:
    """Two ways to one store."""
    with ExitStack() as stack:
        server = stack.enter_context(Running(store_url, clock))
        doors = Flaky(server.address), Flaky(server.address)
        for door in doors:
            stack.callback(door.down)
        yield doors


def test_another_server_is_used_when_one_is_down(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    first, second = doors
    with Client([first.url, second.url], resilience=FAST, clock=clock) as client:
        client.push("q", None, {"data": 1})
        first.down()
        client.push("q", None, {"data": 2})
        messages = client.queue("q").batch(2).wait(0).pop()
        assert [client.ack(one) for one in messages] == ["acked", "acked"]
        assert second.count("/v1/push") == 1
        first.up()
        second.down()
        client.push("q", None, {"data": 3})
        assert first.count("/v1/push") == 2


def test_first_server_may_be_down_from_the_start(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    first, second = doors
    first.down()
    with Client([first.url, second.url], resilience=FAST, clock=clock) as client:
        client.push("q", None, {"data": 1})
    assert second.count("/v1/push") == 1


def test_push_with_lost_answer_is_repeated_and_stored_once(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    first, second = doors
    with Client([first.url, second.url], resilience=FAST, clock=clock) as client:
        first.fail("/v1/push", "lose the answer")
        (receipt,) = client.push("q", None, {"data": 1})
        assert receipt.status == "queued"
        assert (first.count("/v1/push"), second.count("/v1/push")) == (1, 1)
        assert client.connection.stats("q").messages == 1


def test_server_that_cannot_now_is_passed_over(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    first, second = doors
    with Client([first.url, second.url], resilience=FAST, clock=clock) as client:
        first.fail("/v1/push", refusal(503, "store_unavailable"))
        client.push("q", None, {"data": 1})
        assert second.count("/v1/push") == 1


def test_three_failed_retries_raise_error_with_cause(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    with Client(door.url, resilience=FAST, clock=clock) as client:
        door.fail("/v1/push", *[LOST] * 4)
        with pytest.raises(errors.OutcomeUnknown):
            client.push("q", None, {"data": 1})
        assert (door.count("/v1/push"), door.used_up) == (4, True)
        client.push("q", None, {"data": 1})


def test_circuit_opens_after_five_failures_and_says_so(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    with Client(door.url, resilience=Resilience(pauses=(), failures=5, rest=60), clock=clock) as client:
        door.fail("/v1/push", *[LOST] * 5)
        for _ in range(5):
            with pytest.raises(errors.OutcomeUnknown):
                client.push("q", None, {"data": 1})
        with pytest.raises(errors.CircuitOpen, match="circuit breaker is open"):
            client.push("q", None, {"data": 1})
        assert door.count("/v1/push") == 5


def test_call_that_may_have_arrived_is_not_reported_unsent(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    with Client(door.url, resilience=Resilience(pauses=(0, 0, 0), failures=1, rest=60), clock=clock) as client:
        door.fail("/v1/push", "lose the answer")
        with pytest.raises(errors.OutcomeUnknown, match="may or may not have happened"):
            client.push("q", None, {"data": 1})
        assert door.count("/v1/push") == 1
        with pytest.raises(errors.CircuitOpen, match="nothing was sent"):
            client.push("q", None, {"data": 2})


class Spell:
    """A breaker on a clock of its own, and calls that take no time."""

    def __init__(self, **how: Any) -> None:
        self.now = 0.0
        self.breaker = CircuitBreaker(Resilience(**how), lambda: self.now)

    def fail(self) -> None:
        assert self.breaker.allows()
        self.breaker.failed(self.now)


def test_breaker_rests_and_lets_one_try() -> None:
    spell = Spell(pauses=(), failures=5, rest=60)
    breaker = spell.breaker
    for _ in range(4):
        spell.fail()
    assert breaker.allows()
    breaker.worked()
    for _ in range(5):
        spell.fail()
    assert (breaker.allows(), breaker.open) == (False, True)
    spell.now = 59.9
    assert not breaker.allows()
    spell.now = 60.0
    assert [breaker.allows(), breaker.allows()] == [True, False]
    assert breaker.needs_probe
    breaker.probe_failed()
    spell.now = 119.9
    assert not breaker.allows()
    spell.now = 120.0
    assert breaker.allows()
    breaker.worked()
    assert (breaker.allows(), breaker.open, breaker.needs_probe) == (True, False, False)


def test_abandoned_trial_call_does_not_block_others_for_long() -> None:
    spell = Spell(pauses=(), failures=1, rest=60)
    spell.fail()
    spell.now = 60.0
    assert [spell.breaker.allows(), spell.breaker.allows()] == [True, False]
    spell.now = 65.0
    assert spell.breaker.allows()


def test_breaker_counts_concurrent_failures_as_one() -> None:
    spell = Spell()
    began = [spell.now for _ in range(20)]
    for at in began:
        spell.now += 0.01
        spell.breaker.failed(at)
    assert spell.breaker.allows()
    # They all try again within the second; a caller alone would try once, twice and so on, with longer pauses.
    for tenth in range(1, 50):
        spell.now = 1 + tenth / 10
        spell.breaker.failed(spell.now)
    assert not spell.breaker.open
    spell.now = 8.0
    spell.breaker.failed(spell.now)
    assert spell.breaker.open


def test_late_failures_of_old_calls_do_not_keep_the_circuit_open() -> None:
    spell = Spell(pauses=(), failures=1, rest=60)
    spell.fail()
    spell.now = 59.0
    spell.breaker.failed(0.0)
    spell.breaker.failed(58.0)
    spell.now = 60.0
    assert spell.breaker.allows()


def test_brief_lack_of_connections_does_not_open_circuit(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    with Client(door.url, clock=clock) as client:
        client.push("q", None, {"data": 1})
        meet = threading.Barrier(8)

        def work() -> None:
            meet.wait(PATIENCE)
            with suppress(errors.OutcomeUnknown):
                client.queue("empty").wait(20).pop()

        client.queue("empty").create()
        workers = [threading.Thread(target=work) for _ in range(8)]
        for worker in workers:
            worker.start()
        pause = threading.Event()
        while door.count("/v1/claim") < 8:
            pause.wait(0.005)
        door.down()
        for worker in workers:
            worker.join(PATIENCE)
        door.up()
        assert client.queue("q").pop()[0].data == 1


def test_rested_server_is_asked_first_and_never_by_a_poll(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    with Client(door.url, resilience=Resilience(pauses=(), failures=1, rest=0.05), clock=clock) as client:
        client.push("q", None, {"data": 1})
        (message,) = client.queue("q").pop()
        client.queue("empty").create()
        door.fail("/v1/push", LOST)
        with pytest.raises(errors.OutcomeUnknown):
            client.push("q", None, {"data": 2})
        pause = threading.Event()
        pause.wait(0.06)
        before = door.count("/v1")
        poll = threading.Thread(target=lambda: client.queue("empty").wait(20).pop())
        poll.start()
        while not door.count("/v1/claim") > 1:
            pause.wait(0.005)
        assert door.count("/v1") == before + 1
        assert client.ack(message) == "acked"
        client.drain(0)
        poll.join(PATIENCE)


@pytest.mark.parametrize("bad", [{"failures": 0}, {"failures": -1}, {"pauses": (-1,)}, {"rest": -1}])
def test_nonsense_about_resilience_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(errors.BadInput):
        Resilience(**bad)


def test_opening_tries_again_and_passes_on_to_who_serves(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    first, second = doors
    first.fail("/v1", refusal(503, "draining"))
    with Client([first.url, second.url], resilience=Resilience(pauses=()), clock=clock):
        assert (first.count("/v1"), second.count("/v1")) == (1, 1)
    first.fail("/v1", LOST, LOST)
    with Client(first.url, resilience=FAST, clock=clock) as client:
        client.push("q", None, {"data": 1})
    first.down()
    with pytest.raises(errors.StoreUnavailable, match="no server answers"):
        Client(first.url, resilience=FAST, clock=clock).open()


def test_retry_after_that_is_too_long_raises_overloaded(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    with Client(door.url, clock=clock) as client:
        door.fail("/v1/push", refusal(429, "overloaded", "retry-after: 3600"))
        with pytest.raises(errors.Overloaded):
            client.push("q", None, {"data": 1})
        assert door.count("/v1/push") == 1


def test_claim_without_wait_respects_requested_tries(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    with Client(door.url, resilience=Resilience(pauses=()), clock=clock) as client:
        door.fail("/v1/claim", refusal(503, "store_unavailable"))
        with pytest.raises(errors.StoreUnavailable):
            client.queue("q").wait(0).pop()
        assert door.count("/v1/claim") == 1


def test_nack_without_lease_is_not_repeated_for_next_holder(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    with Client(door.url, resilience=FAST, clock=clock) as client:
        client.push("q", None, {"data": 1, "transaction_id": "t"})
        (message,) = client.queue("q").pop()
        named = {"transaction_id": "t", "partition_id": message.partition_id}
        door.fail("/v1/settle", "lose the answer")
        with pytest.raises(errors.OutcomeUnknown):
            client.nack(named, "once")
        assert door.count("/v1/settle") == 1
        (again,) = client.queue("q").pop()
        assert again.retry_count == 1
        door.fail("/v1/settle", "lose the answer")
        with_lease = {**named, "lease_id": again.lease_id}
        assert client.nack(with_lease, "with its lease it is repeated, and finds itself done") == "already"
        (third,) = client.queue("q").pop()
        door.fail("/v1/settle", "lose the answer")
        assert (third.retry_count, client.ack(named)) == (2, "already")


def test_transaction_nacking_by_ids_runs_once_for_its_holder(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    with Client(door.url, resilience=FAST, clock=clock) as client:
        client.push("q", None, {"data": 1, "transaction_id": "t"})
        (message,) = client.queue("q").pop()
        named = {"transaction_id": "t", "partition_id": message.partition_id}
        with pytest.raises(errors.BadInput, match="lease_id"):
            client.transaction().nack(named)
        steps = client.transaction().nack({**named, "lease_id": message.lease_id}).queue("out").push({"data": 1})
        door.fail("/v1/transaction", "lose the answer")
        assert [one.verdict for one in steps.commit().settled] == ["already"]
        assert client.connection.stats("out").messages == 1
        (again,) = client.queue("q").pop()
        assert again.retry_count == 1
        bare = ByTransaction(message.partition_id, "t")
        door.fail("/v1/transaction", "lose the answer")
        with pytest.raises(errors.OutcomeUnknown):
            client.connection.transaction().retry(bare).commit()
        (third,) = client.queue("q").pop()
        assert (third.retry_count, door.count("/v1/transaction")) == (2, 3)


def test_consumer_outlives_trouble_that_passes(
    doors: tuple[Flaky, Flaky], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = doors[0]
    with Client(door.url, resilience=Resilience(pauses=()), clock=clock) as client:
        client.push("q", None, {"data": 1})
        pauses: list[float] = []
        monkeypatch.setattr(client, "sleep", pauses.append)
        busy, leaving, away = (429, "overloaded"), (503, "draining"), (503, "store_unavailable")
        door.fail("/v1/claim", *(refusal(*why) for why in (busy, leaving, away)), LOST)
        client.queue("q").group("g").limit(1).consume(client.ack).run()
        assert (pauses, client.connection.groups("q")[0].acked) == ([1.0] * 4, 1)


@pytest.mark.parametrize("pauses", [(), (0.001,)])
@pytest.mark.parametrize("fault", [LOST, "lose the answer"])
def test_claim_with_lost_answer_costs_no_message_or_failure(
    doors: tuple[Flaky, Flaky],
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    pauses: tuple[float, ...],
    fault: Fault,
) -> None:
    """The clock stands still: nothing comes back by itself."""
    door = doors[0]
    with Client(door.url, resilience=Resilience(pauses=pauses), clock=clock) as client:
        client.push("q", None, [{"data": number} for number in range(3)])
        monkeypatch.setattr(client, "sleep", lambda _: None)
        door.fail("/v1/claim", fault)
        seen: list[tuple[int, int]] = []

        def handle(message: Message) -> None:
            seen.append((message.data, message.retry_count))
            client.ack(message)

        client.queue("q").group("g").batch(2).each().limit(3).idle(1).consume(handle).run()
        assert seen == [(0, 0), (1, 0), (2, 0)]
        (row,) = client.connection.groups("q")
        assert (row.acked, row.leases, door.used_up) == (3, 0, True)


def test_consumer_does_not_outlive_nonsense(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    with Client(door.url, resilience=Resilience(pauses=()), clock=clock) as client:
        door.fail("/v1/claim", refusal(503, "schema_too_new"))
        with pytest.raises(errors.SchemaTooNew):
            client.queue("q").consume(client.ack).run()


def test_lease_that_runs_out_while_no_server_is_there_is_lost(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    told: list[str] = []

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(door.url, resilience=SLOW, clock=clock) as client:
            await client.push("q", None, [{"data": 1}, {"data": 2}])

            async def handle(message: Message) -> None:
                door.down()
                clock.advance(31)
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    told.append("cancelled")
                    raise

            consumer = client.queue("q").batch(2).each().renew_lease(True, 0.01).limit(2).consume(handle)
            await consumer.on_error(lambda message, error: told.append(type(error).__name__))
            door.up()

    asyncio.run(job())
    assert told == ["cancelled", "LeaseLost"]


def test_thread_is_told_of_it_at_its_end(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    told: list[str] = []
    with Client(door.url, resilience=SLOW, clock=clock) as client:
        client.push("q", None, [{"data": 1}, {"data": 2}])

        def handle(message: Message) -> None:
            told.append("began")
            door.down()
            clock.advance(31)

        consumer = client.queue("q").batch(2).each().renew_lease(True, 0.01).limit(2).consume(handle)
        consumer.on_success(lambda message: told.append("done"))
        consumer.on_error(lambda message, error: told.append(type(error).__name__)).run()
        door.up()
    assert told == ["began", "LeaseLost"]


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What an answer waits for that does not come while a test lasts."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("renew_every", [None, 0.01])
def test_extension_without_answer_is_retried_in_time(
    doors: tuple[Flaky, Flaky], clock: ManualClock, never: threading.Event, renew_every: float | None
) -> None:
    door = doors[0]
    told: list[object] = []

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(door.url, resilience=SLOW, clock=clock) as client:
            await client.push("q", None, {"data": 1})

            async def handle(message: Message) -> None:
                before = message.delivery.deadline
                door.fail("/v1/extend-all", never)
                clock.advance(1.5)
                while message.delivery.deadline == before:
                    await asyncio.sleep(0.002)
                clock.advance(1)
                told.append(await client.ack(message))

            consumer = client.queue("q").lease(2).renew_lease(True, renew_every).limit(1).consume(handle)
            await consumer.on_error(lambda message, error: told.append(error))

    asyncio.run(job())
    assert (told, door.used_up) == (["acked"], True)


def test_thread_tries_it_again_as_well(doors: tuple[Flaky, Flaky], clock: ManualClock, never: threading.Event) -> None:
    door = doors[0]
    told: list[object] = []
    with Client(door.url, resilience=SLOW, clock=clock) as client:
        client.push("q", None, {"data": 1})

        def handle(message: Message) -> None:
            before = message.delivery.deadline
            door.fail("/v1/extend-all", never)
            clock.advance(1.5)
            end, pause = time.monotonic() + 8, threading.Event()
            while message.delivery.deadline == before and time.monotonic() < end:
                pause.wait(0.002)
            told.append(message.delivery.deadline > before)
            client.ack(message)

        consumer = client.queue("q").lease(2).limit(1).consume(handle)
        consumer.on_error(lambda message, error: told.append(error)).run()
        assert (told, door.used_up) == ([True], True)


class Slow:
    """A handler that fails the first of two, and whose ack of the second is answered late."""

    def __init__(self, door: Flaky, *, by_ids: bool) -> None:
        self.door, self.by_ids = door, by_ids
        self.told: list[object] = []
        self.later = threading.Event()

    def named(self, message: Message) -> Any:
        ids = {"transaction_id": message.transaction_id, "partition_id": message.partition_id}
        return ids if self.by_ids else message

    async def handle(self, client: AsyncClient, message: Message) -> None:
        if message.data == 1:
            await client.nack(self.named(message), "no", delay=1000)
            return
        self.door.fail("/v1/settle", self.later)
        try:
            self.told.append(await client.ack(self.named(message)))
        except asyncio.CancelledError:
            self.told.append("cancelled")
            raise
        await asyncio.sleep(0)
        self.told.append("went on")


@pytest.mark.parametrize("by_ids", [False, True])
def test_lease_ended_by_settlements_is_not_reported_lost(
    doors: tuple[Flaky, Flaky], clock: ManualClock, by_ids: bool
) -> None:
    door = doors[0]
    slow = Slow(door, by_ids=by_ids)

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(door.url, clock=clock) as client:
            await client.push("q", None, [{"data": 1}, {"data": 2}])

            async def handle(message: Message) -> None:
                if message.data == 2:
                    watching.append(asyncio.ensure_future(watch(message)))
                await slow.handle(client, message)

            async def watch(message: Message) -> None:
                while not message.delivery.lease.ended and not slow.told:
                    await asyncio.sleep(0.002)
                slow.later.set()

            watching: list[asyncio.Future[None]] = []
            await client.queue("q").batch(2).each().renew_lease(True, 0.005).limit(2).consume(handle)
            await watching[0]

    asyncio.run(job())
    assert slow.told == ["acked", "went on"]


def test_lease_that_expires_while_settled_is_not_reported_lost(
    doors: tuple[Flaky, Flaky], clock: ManualClock, never: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = doors[0]
    slow = Slow(door, by_ids=False)
    checks: list[int] = []
    check = AsyncLeaseKeeper._check

    def counted(keeper: AsyncLeaseKeeper[Any]) -> None:
        check(keeper)
        checks.append(1)

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(door.url, clock=clock) as client:
            await client.push("q", None, {"data": 2})

            async def watch() -> None:
                while not door.count("/v1/settle"):
                    await asyncio.sleep(0.002)
                door.fail("/v1/extend-all", never)
                clock.advance(16)
                while not door.count("/v1/extend-all"):
                    await asyncio.sleep(0.002)
                clock.advance(16)
                checks.clear()
                while not checks:
                    await asyncio.sleep(0.002)
                slow.later.set()

            monkeypatch.setattr(AsyncLeaseKeeper, "_check", counted)
            watching = asyncio.ensure_future(watch())
            queue = client.queue("q").renew_lease(True, 0.02).limit(1)
            await queue.consume(lambda message: slow.handle(client, message))
            await watching

    asyncio.run(job())
    assert slow.told == ["acked", "went on"]


@pytest.mark.parametrize("atomic", [True, False])
def test_batch_undone_by_repeat_is_not_reported_rolled_back(
    doors: tuple[Flaky, Flaky], clock: ManualClock, atomic: bool
) -> None:
    """In a queue that rewinds what is acked behind a failure goes back with it."""
    door, _ = doors
    with Client(door.url, resilience=FAST, clock=clock) as client:
        client.queue("q").config(on_failure="rewind").create()
        client.push("q", None, [{"data": number} for number in range(3)])
        messages = client.queue("q").batch(3).pop()
        asks = [
            {
                "transaction_id": one.transaction_id,
                "partition_id": one.partition_id,
                "lease_id": one.lease_id,
                "status": status,
            }
            for one, status in zip(messages, ("completed", "failed", "completed"), strict=True)
        ]
        door.fail("/v1/settle", "lose the answer")
        if atomic:
            with pytest.raises(errors.OutcomeUnknown, match="the repeated call was refused"):
                client.ack_batch(asks)
        else:
            assert client.ack_batch(asks, atomic=False)[0].verdict == "already"
        (row,) = client.connection.groups("q")
        assert (row.acked, row.lag) == (1, 2), "it was done"
        assert door.used_up


@pytest.mark.parametrize("lost", ["lose the answer", "lose the request"])
def test_batch_of_acks_is_rolled_back_even_after_repeat(
    doors: tuple[Flaky, Flaky], clock: ManualClock, lost: Fault
) -> None:
    door, _ = doors
    with Client(door.url, resilience=FAST, clock=clock) as client:
        client.push("q", None, [{"data": number} for number in range(3)])
        first, *rest = client.queue("q").batch(3).pop()
        client.nack(first, "no")
        door.fail("/v1/settle", lost)
        with pytest.raises(errors.RolledBack, match="entry 0 was refused: invalid_lease"):
            client.ack_batch([first, *rest])
        assert client.connection.groups("q")[0].acked == 0
        door.fail("/v1/settle", lost)
        assert {one.verdict for one in client.ack_batch(rest)} <= {"acked", "already"}
        assert client.connection.groups("q")[0].acked == 2


def test_transaction_of_unknown_outcome_runs_once_on_repeat(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    with Client(door.url, resilience=Resilience(pauses=(0.001,)), clock=clock) as client:
        client.push("in", None, [{"data": 1}, {"data": 2}])
        first, second = client.queue("in").batch(2).pop()
        steps = client.transaction().ack(first).queue("out").push([{"data": 1}, {"data": 2, "delay_seconds": 9}])
        door.fail("/v1/transaction", "lose the answer", "lose the answer")
        with pytest.raises(errors.OutcomeUnknown):
            steps.commit()
        done = steps.commit()
        assert [one.verdict for one in done.settled] == ["already"]
        assert [one.status for one in done.pushed[0]] == ["queued", "scheduled"]
        never = client.transaction().ack(second).queue("out").push([{"data": 3}])
        door.fail("/v1/transaction", LOST, LOST)
        with pytest.raises(errors.OutcomeUnknown):
            never.commit()
        assert [one.verdict for one in never.commit().settled] == ["acked"]
        stats = client.connection.stats("out")
        assert (stats.messages, stats.scheduled) == (2, 1)


@pytest.mark.parametrize("strict", [True, False])
def test_releasing_transaction_with_lost_answer_runs_once(
    doors: tuple[Flaky, Flaky], clock: ManualClock, strict: bool
) -> None:
    """In a queue that rewinds what is acked behind a failure goes back with it."""
    door, _ = doors
    with Client(door.url, resilience=FAST, clock=clock) as client:
        client.queue("q").config(on_failure="rewind").create()
        client.push("q", None, [{"data": number} for number in range(3)])
        first, second, third = client.queue("q").batch(3).pop()
        door.fail("/v1/transaction", "lose the answer")
        if strict:
            done = client.transaction().ack(first).nack(second, "no").ack(third).queue("out").push({"data": 1}).commit()
        else:
            steps = client.connection.transaction().ack(first.delivery).settle(second.delivery, "retry")
            done = steps.ack(third.delivery).push("out", {}).commit()
        assert door.used_up
        assert [answer.verdict for answer in done.settled] == ["already"] * 3
        assert [receipt.status for receipt in done.pushed[0]] == ["queued"]
        assert client.connection.stats("out").messages == 1
        (row,) = client.connection.groups("q")
        assert (row.acked, row.lag) == (1, 2)


def test_failing_transaction_refused_on_repeat_is_unknown(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door, _ = doors
    with Client(door.url, resilience=FAST, clock=clock) as client:
        client.push("q", None, [{"data": number} for number in range(3)])
        first, second, third = client.queue("q").batch(3).pop()
        client.ack(first)
        steps = client.transaction().ack(first).nack(second)
        door.fail("/v1/transaction", LOST)
        with pytest.raises(errors.OutcomeUnknown, match="the repeated call was refused"):
            steps.commit()
        with pytest.raises(errors.RolledBack, match="settlement 0 was refused as already"):
            steps.commit()
        door.fail("/v1/transaction", LOST)
        with pytest.raises(errors.RolledBack, match="settlement 0 was refused as already"):
            client.transaction().ack(first).ack(third).commit()
        assert door.used_up


@pytest.mark.parametrize("settle", ["ack", "nack", "batch", "transaction", "ids"])
def test_drain_does_not_wait_for_settlement_with_lost_answer(
    doors: tuple[Flaky, Flaky], clock: ManualClock, settle: str
) -> None:
    door = doors[0]
    with Client(door.url, resilience=FAST, clock=clock) as client:
        client.push("q", None, {"data": 1})
        (message,) = client.queue("q").pop()
        door.fail("/v1/transaction" if settle == "transaction" else "/v1/settle", "lose the answer")
        match settle:
            case "ack":
                client.ack(message)
            case "nack":
                client.nack(message)
            case "batch":
                client.ack_batch([message])
            case "transaction":
                client.transaction().ack(message).commit()
            case _:
                ids = {"transaction_id": message.transaction_id, "partition_id": message.partition_id}
                client.ack({**ids, "lease_id": message.lease_id})
        assert door.used_up
        for held in (client.connection._held, client.connection.transport._held):  # type: ignore[attr-defined]
            assert len(held) == 0
        assert client.drain(3600) == 0


def test_pauses_are_one_two_and_four_seconds_with_jitter() -> None:
    assert Resilience() == Resilience((1.0, 2.0, 4.0), 5, 60.0)
    spread = set()
    for _ in range(20):
        tries = CallRetries("http://x", 15.0, repeatable=True, pauses=Resilience().pauses)
        pauses = [tries.pause_after_broken(Broken("x")) for _ in range(3)]
        for pause, most in zip(pauses, (1, 2, 4), strict=True):
            assert most / 2 <= pause <= most
        spread.add(round(pauses[0], 6))
        with pytest.raises(errors.OutcomeUnknown):
            tries.pause_after_broken(Broken("x"))
    assert len(spread) > 10
    tries = CallRetries("http://x", 15.0, repeatable=False, pauses=(0.0,))
    assert tries.pause_after_unsent(Unsent("x")) == 0.0
    with pytest.raises(errors.StoreUnavailable, match="nothing was changed"):
        tries.pause_after_unsent(Unsent("x"))


def test_list_of_urls_that_are_not_servers_is_refused() -> None:
    for urls in ([], ["sqlite:///a.db", "sqlite:///b.db"], ["http://127.0.0.1:1", "sqlite:///b.db"]):
        with pytest.raises(errors.BadStoreURL):
            Client(urls).open()


def test_acks_by_transaction_id_travel_together_too(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]

    async def job() -> list[str]:
        async with AsyncClient(door.url, clock=clock) as client:
            await client.push("q", None, [{"data": number} for number in range(20)])
            messages = await client.queue("q").batch(20).pop()
            named = [{"transaction_id": one.transaction_id, "partition_id": one.partition_id} for one in messages]
            return [verdict.value for verdict in await asyncio.gather(*map(client.ack, named))]

    assert (asyncio.run(job()), door.count("/v1/settle")) == (["acked"] * 20, 1)


def test_concurrent_acks_share_requests_with_own_verdicts(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    with Client(door.url, resilience=FAST, clock=clock) as client:
        client.push("q", None, [{"data": number} for number in range(40)])
        (lost,) = client.queue("q").lease(1).wait(0).pop()
        messages = client.queue("q").batch(39).wait(0).pop()
        clock.advance(2)
        client.connection.stats("q")
        verdicts: dict[int, str] = {}
        hold = threading.Event()
        door.fail("/v1/settle", hold)

        def ack(number: int, message: object) -> None:
            try:
                verdicts[number] = client.ack(message)  # type: ignore[arg-type]
            except errors.LeaseLost as problem:
                verdicts[number] = problem.code

        threads = [threading.Thread(target=ack, args=(n, one)) for n, one in enumerate([*messages, lost])]
        for thread in threads:
            thread.start()
        waiting = client.connection.transport._acks._waiting  # type: ignore[attr-defined]
        pause = threading.Event()
        while sum(map(len, list(waiting.values()))) < len(threads) - door.count("/v1/settle"):
            pause.wait(0.005)
        hold.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert door.count("/v1/settle") == 2
        assert verdicts == dict.fromkeys(range(39), "acked") | {39: "lease_lost"}
