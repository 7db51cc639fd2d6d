"""What gets lost between an app and its server costs neither a message nor a failure."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import ackwise
from ackwise.client.aio.lease import AsyncLease
from ackwise.client.aio.lease_keeper import AsyncLeaseKeeper
from ackwise.clock import ManualClock
from ackwise.subscriber import App, Message
from ackwise.subscriber.feeds.broker_delivery import BrokerDelivery
from ackwise.subscriber.feeds.broker_feed import BrokerFeed
from tests.client.flaky import Fault, Flaky
from tests.server.running import Running
from tests.subscriber.app_runs import connection, go, until_acked
from tests.subscriber.conftest import until

LOST: list[Fault] = ["lose the request", "lose the answer"]


@pytest.fixture
def server(store_url: str, clock: ManualClock) -> Iterator[Running]:
    with Running(store_url, clock) as running:
        yield running


@pytest.fixture
def door(server: Running) -> Iterator[Flaky]:
    proxy = Flaky(server.address)
    yield proxy
    proxy.down()
    assert proxy.used_up, "a test whose faults never happen shows nothing"


@pytest.fixture
def app(door: Flaky, clock: ManualClock) -> App:
    return App(door.url, clock=clock)


def handled(app: App, explicit: bool) -> list[int]:
    """One failure is all that a message may have."""
    seen: list[int] = []

    async def implicit(number: int) -> None:
        seen.append(number)

    async def wrapped(msg: Message[int]) -> None:
        seen.append(msg.payload)
        assert await msg.ack()

    app.subscriber("q", retry_limit=1, concurrency=4)(wrapped if explicit else implicit)
    return seen


async def nothing_was_lost(app: App, seen: list[int], count: int) -> None:
    """The clock stands still: nothing comes back by itself."""
    await until_acked(app, "q", count)
    (row,) = await connection(app).groups("q")
    assert (sorted(seen), row.acked, row.dead, row.lag) == (list(range(count)), count, 0, 0)


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("fault", LOST)
def test_claim_without_an_answer_loses_no_message(
    app: App, door: Flaky, server: Running, explicit: bool, fault: Fault
) -> None:
    """The first of an app, which does not wait."""
    seen = handled(app, explicit)

    async def job() -> None:
        with ackwise.connect(server.url) as queue:
            queue.push_many("q", range(6))
        door.fail("/v1/claim", fault, fault)
        async with app:
            await nothing_was_lost(app, seen, 6)

    go(job)


@pytest.mark.parametrize("explicit", [False, True])
def test_poll_without_an_answer_loses_no_message(app: App, door: Flaky, server: Running, explicit: bool) -> None:
    seen = handled(app, explicit)

    async def job() -> None:
        with ackwise.connect(server.url) as queue:
            queue.create_queue("q")
        passes = threading.Event()
        passes.set()
        # The first finds nothing; the second waits, and is given what comes.
        door.fail("/v1/claim", passes, "lose the answer")
        async with app:
            await asyncio.to_thread(server.until_waiting)
            with ackwise.connect(server.url) as queue:
                queue.push("q", 0)
            await nothing_was_lost(app, seen, 1)

    go(job)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("explicit", [False, True])
def test_poll_that_waits_on_at_a_server_that_was_left(pg_url: str, clock: ManualClock, explicit: bool, at: int) -> None:
    """A proxy keeps the connection: the server may deliver the message late or never."""

    async def job() -> None:
        with Running(pg_url, clock) as first, Running(pg_url, clock) as second:
            door = Flaky(first.address)
            app = App([door.url, second.url], clock=clock)
            seen = handled(app, explicit)
            async with app:
                await asyncio.to_thread(first.until_waiting)
                door.down()
                await asyncio.to_thread(second.until_waiting)
                with ackwise.connect((first, second)[at].url) as queue:
                    for number in range(3):
                        queue.push("q", number)
                await nothing_was_lost(app, seen, 3)

    go(job)


@pytest.mark.parametrize("explicit", [False, True])
def test_claims_and_settlements_when_the_transport_gives_up(
    app: App, door: Flaky, server: Running, explicit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app goes on where it was, with the claim that was not answered."""
    seen = handled(app, explicit)
    monkeypatch.setattr("ackwise.subscriber.feeds.broker_feed.PAUSE_AFTER_FAILURE", 0.01)

    async def job() -> None:
        with ackwise.connect(server.url) as queue:
            queue.push_many("q", range(30))
        async with app:
            connection(app).transport._patience = 0.0  # type: ignore[attr-defined]
            door.fail("/v1/claim", *(LOST * 4))
            await nothing_was_lost(app, seen, 30)

    go(job)


@pytest.mark.parametrize("how", ["ack", "nak", "term"])
def test_answer_to_a_settlement(app: App, door: Flaky, how: str) -> None:
    """It was settled, and by this call."""
    answers: list[tuple[bool, bool]] = []

    @app.subscriber("q", retry_limit=5)
    async def handle(msg: Message[int]) -> None:
        if msg.attempt > 1:
            await msg.ack()
            return
        door.fail("/v1/settle", "lose the answer")
        settle = getattr(msg, how)
        answers.append((await settle(), await settle()))

    async def job() -> None:
        async with app:
            await connection(app).push("q", 1)
            await until(lambda: answers)
        assert answers == [(True, False)]

    go(job)


@pytest.mark.parametrize(
    ("first", "then", "landed"),
    [("nak", "ack", False), ("term", "ack", False), ("ack", "nak", False), ("ack", "ack", True), ("nak", "nak", True)],
)
def test_settling_again_after_unknown_outcome(app: App, door: Flaky, first: str, then: str, landed: bool) -> None:
    """The first one arrived: another outcome did not settle it, whatever was asked for before."""
    answers: list[bool] = []
    unknown: list[str] = []

    @app.subscriber("q", retry_limit=5)
    async def handle(msg: Message[int]) -> None:
        if msg.attempt > 1:
            await msg.ack()
            return
        connection(app).transport._patience = 0.0  # type: ignore[attr-defined]
        door.fail("/v1/settle", "lose the answer")
        with pytest.raises(ackwise.errors.OutcomeUnknown):
            await getattr(msg, first)()
        unknown.append(first)
        answers.append(await getattr(msg, then)())

    async def job() -> None:
        async with app:
            await connection(app).push("q", 1)
            await until(lambda: answers)
        assert (unknown, answers) == ([first], [landed])

    go(job)


@pytest.mark.parametrize("how", ["ack", "nak"])
def test_failed_settlement_after_handler_redelivers_message(
    app: App, door: Flaky, clock: ManualClock, how: str
) -> None:
    """No handler works on it, so its lease is not extended."""
    seen: list[int] = []
    later: list[asyncio.Task[bool]] = []

    @app.subscriber("q")
    async def handle(msg: Message[int]) -> None:
        seen.append(msg.attempt)
        if msg.attempt > 1:
            await msg.ack()
            return
        connection(app).transport._patience = 0.0  # type: ignore[attr-defined]
        door.fail("/v1/settle", "lose the request")
        later.append(asyncio.ensure_future(getattr(msg, how)()))
        await asyncio.sleep(0)
        assert msg.settled, "it is under way"

    async def job() -> None:
        async with app:
            await connection(app).push("q", 1)
            await until(lambda: later and later[0].done())
            assert isinstance(later[0].exception(), ackwise.errors.OutcomeUnknown)
            for _ in range(2):
                clock.advance(16)
                # Time for a wrong extension.
                await asyncio.sleep(0.05)
            await until_acked(app, "q", 1)
            assert seen == [1, 2]

    go(job)


@pytest.mark.parametrize("how", ["ack", "nak", "term"])
def test_settlement_begun_before_stop_is_awaited(app: App, door: Flaky, how: str) -> None:
    """Its handler has returned, and only the answer is not there yet."""
    later: list[asyncio.Task[bool]] = []
    answered = threading.Event()

    @app.subscriber("q")
    async def handle(msg: Message[int]) -> None:
        door.fail("/v1/settle", answered)
        later.append(asyncio.ensure_future(getattr(msg, how)()))
        await asyncio.sleep(0)

    async def job() -> None:
        await app.start()
        await connection(app).push("q", 1)
        await until(lambda: door.used_up and later)
        stopping = asyncio.create_task(app.stop(grace=600))
        try:
            await asyncio.sleep(0.05)
            assert not stopping.done()
        finally:
            answered.set()
        await stopping
        assert await later[0]

    go(job)


def test_message_settled_elsewhere_is_not_ours(app: App) -> None:
    answers: list[bool] = []

    @app.subscriber("q")
    async def handle(msg: Message[int]) -> None:
        (lease,) = await connection(app).leases()
        await connection(app).release(lease.lease_id)
        answers.append(await msg.ack())
        await asyncio.Event().wait()

    async def job() -> None:
        await app.start()
        await connection(app).push("q", 1)
        await until(lambda: answers)
        await app.stop(grace=0)
        assert answers[0] is False

    go(job)


def test_settlement_by_an_earlier_try_logs_no_warning(
    app: App, door: Flaky, server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    seen = handled(app, explicit=False)

    async def job() -> None:
        async with app:
            await asyncio.to_thread(server.until_waiting)
            door.fail("/v1/claim", "lose the answer", "lose the answer")
            await connection(app).push("q", 0)
            await nothing_was_lost(app, seen, 1)

    go(job)
    assert "too late" not in caplog.text


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What an answer waits for that does not come while a test lasts."""
    event = threading.Event()
    yield event
    event.set()


def test_extension_without_answer_blocks_no_other_lease(
    app: App, door: Flaky, clock: ManualClock, never: threading.Event
) -> None:
    working: list[Message[int]] = []
    cancelled: list[Message[int]] = []
    done = asyncio.Event()

    @app.subscriber("q", concurrency=2)
    async def handle(msg: Message[int]) -> None:
        if msg.attempt > 1:
            await msg.ack()
            return
        working.append(msg)
        try:
            await done.wait()
            assert await msg.ack()
        except asyncio.CancelledError:
            cancelled.append(msg)
            raise

    def kept() -> list[float]:
        """How much longer than the shorter one."""
        ends = sorted(msg.deadline.timestamp() for msg in working if msg.deadline is not None)
        return [end - ends[0] for end in ends]

    async def job() -> None:
        async with app:
            await connection(app).push("q", 0)
            await until(lambda: len(working) == 1)
            clock.advance(8)
            await connection(app).push("q", 1)
            await until(lambda: len(working) == 2)
            door.fail("/v1/extend-all", never)
            clock.advance(8)
            await until(lambda: door.used_up)
            clock.advance(8)
            await until(lambda: kept() == [0, 24])
            clock.advance(8)
            await until(lambda: cancelled)
            done.set()
            await until_acked(app, "q", 1)
            # The server had extended it, and only the answer is missing.
            clock.advance(16)
            await until_acked(app, "q", 2)
            assert len(cancelled) == 1

    go(job)


def test_leases_that_are_due_at_once_are_extended_by_one_request(app: App, door: Flaky, clock: ManualClock) -> None:
    working: list[Message[int]] = []
    done = asyncio.Event()

    @app.subscriber("q", concurrency=20)
    async def handle(msg: Message[int]) -> None:
        working.append(msg)
        await done.wait()
        assert await msg.ack()

    async def job() -> None:
        async with app:
            await connection(app).push_many("q", range(20))
            await until(lambda: len(working) == 20)
            assert len(await connection(app).leases()) == 20
            before = min(msg.deadline for msg in working if msg.deadline is not None)
            clock.advance(16)
            await until(lambda: all(msg.deadline is not None and msg.deadline > before for msg in working))
            asked = door.count("/v1/extend-all")
            done.set()
            await until_acked(app, "q", 20)
        assert (asked, door.count("/v1/extend")) == (1, 0)

    go(job)


def test_extension_without_answer_is_retried_in_time(
    app: App, door: Flaky, clock: ManualClock, never: threading.Event
) -> None:
    seen: list[Message[int]] = []
    done = asyncio.Event()

    @app.subscriber("q", lease=2)
    async def handle(msg: Message[int]) -> None:
        seen.append(msg)
        await done.wait()
        assert await msg.ack()

    async def job() -> None:
        async with app:
            await connection(app).push("q", 1)
            await until(lambda: seen)
            first = seen[0].deadline
            door.fail("/v1/extend-all", never)
            clock.advance(1.5)
            await until(lambda: seen[0].deadline != first)
            clock.advance(1)
            done.set()
            await until_acked(app, "q", 1)
        assert [msg.attempt for msg in seen] == [1]

    go(job)


class Slow:
    """Explicit handlers that settle, and how that goes."""

    def __init__(self, app: App, how: str) -> None:
        self.app = app
        self.told: list[object] = []
        self.lease: AsyncLease

        @app.subscriber("q", retry_limit=9, backoff=(1000,))
        async def handle(msg: Message[int]) -> None:
            assert isinstance(msg._delivery, BrokerDelivery)
            self.lease = msg._delivery.client_delivery.lease
            try:
                self.told.append(await getattr(msg, how)())
            except asyncio.CancelledError:
                self.told.append("cancelled")
                raise
            await asyncio.sleep(0)
            self.told.append("went on")

    async def looked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The keeper of leases has looked what time it is."""
        beats: list[int] = []
        plain = AsyncLeaseKeeper._check

        def check(*given: Any) -> None:
            plain(*given)
            beats.append(1)

        monkeypatch.setattr(AsyncLeaseKeeper, "_check", check)
        feed: BrokerFeed = self.app._consumers[0]._feed  # type: ignore[assignment]
        feed.clock_moved()
        await until(lambda: beats)


@pytest.mark.parametrize("how", ["ack", "nak", "term"])
def test_lease_ended_by_settlement_is_not_reported_lost(app: App, door: Flaky, clock: ManualClock, how: str) -> None:
    slow, later = Slow(app, how), threading.Event()

    async def job() -> None:
        async with app:
            door.fail("/v1/settle", later)
            await connection(app).push("q", 1)
            await until(lambda: door.count("/v1/settle") == 1)
            clock.advance(16)
            await until(lambda: slow.told or slow.lease.ended)
            later.set()
            await until(lambda: slow.told[-1:] in (["went on"], ["cancelled"]))
        assert slow.told == [True, "went on"]

    go(job)


def test_lease_that_expires_while_settled_is_not_reported_lost(
    app: App, door: Flaky, clock: ManualClock, never: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, later = Slow(app, "ack"), threading.Event()

    async def job() -> None:
        async with app:
            door.fail("/v1/settle", later)
            await connection(app).push("q", 1)
            await until(lambda: door.count("/v1/settle") == 1)
            door.fail("/v1/extend-all", never)
            clock.advance(16)
            await until(lambda: door.used_up)
            clock.advance(16)
            await slow.looked(monkeypatch)
            later.set()
            await until(lambda: slow.told[-1:] in (["went on"], ["cancelled"]))
        assert slow.told == [True, "went on"]

    go(job)


def test_claim_without_an_answer_goes_back_when_the_app_stops(
    app: App, door: Flaky, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ackwise.subscriber.feeds.broker_feed.PAUSE_AFTER_FAILURE", 60)

    @app.subscriber("q", concurrency=2)
    async def handle(number: int) -> None:
        await asyncio.Event().wait()

    async def job() -> None:
        await app.start()
        await asyncio.to_thread(server.until_waiting)
        connection(app).transport._patience = 0.0  # type: ignore[attr-defined]
        door.fail("/v1/claim", "lose the answer")
        async with ackwise.connect_async(server.url) as queue:
            await queue.push_many("q", range(2))
            while sum(one.held for one in await queue.leases()) < 2:
                await asyncio.sleep(0.005)
            await app.stop(grace=0)
            assert await queue.leases() == []
            assert [one.failures for one in await queue.claim("q", max=2)] == [0, 0]

    go(job)


def test_poll_without_an_answer_goes_back_when_the_app_stops(
    app: App, door: Flaky, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ackwise.subscriber.feeds.broker_feed.PAUSE_AFTER_FAILURE", 60)

    @app.subscriber("q")
    async def handle(number: int) -> None:
        await asyncio.Event().wait()

    async def job() -> None:
        passes = threading.Event()
        passes.set()
        # The first finds nothing; the second waits, and is given what comes.
        door.fail("/v1/claim", passes, "lose the answer")
        await app.start()
        # Less than nothing: how long a poll waits is added to it.
        connection(app).transport._patience = -100.0  # type: ignore[attr-defined]
        await asyncio.to_thread(server.until_waiting)
        feed: BrokerFeed = app._consumers[0]._feed  # type: ignore[assignment]
        async with ackwise.connect_async(server.url) as queue:
            await queue.push("q", 1)
            while not sum(one.held for one in await queue.leases()):
                await asyncio.sleep(0.005)
            assert feed._unanswered_poll is not None
            await app.stop(grace=0)
            assert await queue.leases() == []
            assert [one.failures for one in await queue.claim("q")] == [0]

    go(job)
