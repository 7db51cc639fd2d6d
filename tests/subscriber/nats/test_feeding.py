"""Subscribers of JetStream are fed, whatever happens around them, and what they hold stays theirs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from nats.js import JetStreamContext, api

import ackwise
from ackwise.subscriber import AckPolicy, App, Message, Term
from ackwise.subscriber.feeds.jetstream import consumer, pull
from tests.patience import PATIENCE
from tests.subscriber.conftest import until
from tests.subscriber.nats.conftest import (
    NATSServer,
    Order,
    answers,
    hear,
    info,
    js_of,
    keep,
    let_run_out,
    pending,
    run,
    running,
    serving,
    until_pending,
)

BEAT = 1.5
"""An ack wait that is kept alive: a third of it is far more than a loop stands still."""


def test_idle_subscribers_ask_for_ever(app: App, subject: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "EXPIRES", 0.02)
    seen: list[int] = []
    orders = app.publisher(subject, Order)
    for number in range(20):

        async def handle(order: Order, number: int = number) -> None:
            seen.append(number)

        app.subscriber(subject, durable=f"d{number}", concurrency=1 + number % 2)(handle)

    async def job(app: App, js: JetStreamContext) -> None:
        asks = [await hear(app, f"$JS.API.CONSUMER.MSG.NEXT.{subject}.d{number}") for number in range(20)]
        await until(lambda: all(len(each) >= 20 for each in asks))
        assert app.live
        await orders.publish(Order(1))
        await until(lambda: len(seen) == 20)
        assert sorted(seen) == list(range(20))

    run(app, job)


def test_lost_pull_request_is_repeated(app: App, nats_url: str, subject: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that comes to a server that is about to stop."""
    monkeypatch.setattr(pull, "SILENCE", 1.5)
    seen, orders = keep(app, subject), app.publisher(subject, Order)

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), App(nats_url) as other:
            lost = await hear(other, f"lost.{subject}.d")
            with monkeypatch.context() as patch:
                patch.setattr(pull, "NEXT", "lost")
                await app.start()
                await until(lambda: lost)
            await orders.publish(Order(1))
            await until(lambda: seen)
            assert await seen[0].ack()
            await app.stop()

    asyncio.run(job())


@pytest.mark.parametrize("whose", ["backoff", "operator"])
def test_handler_slower_than_ack_wait_is_called_once(app: App, subject: str, whose: str) -> None:
    calls: list[int] = []
    go_on = asyncio.Event()
    orders = app.publisher(subject, Order)
    options = {"backoff": (BEAT, 10)} if whose == "backoff" else {}

    @app.subscriber(subject, durable="d", concurrency=4, **options)  # type: ignore[arg-type]
    async def slow(msg: Message[Order]) -> None:
        calls.append(msg.attempt)
        await go_on.wait()
        assert await msg.ack()

    async def job() -> None:
        await app.connect()
        await js_of(app).add_stream(name=subject, subjects=[subject])
        if whose == "operator":
            await js_of(app).add_consumer(
                subject, api.ConsumerConfig(durable_name="d", filter_subject=subject, ack_wait=BEAT)
            )
        await app.stop()
        async with asyncio.timeout(PATIENCE), app:
            await orders.publish(Order(1))
            await until(lambda: calls)
            assert (await info(js_of(app), subject)).config.ack_wait == BEAT
            await let_run_out(js_of(app), subject, BEAT)
            go_on.set()
            await until_pending(js_of(app), subject, (0, 0))
        assert calls == [1]

    asyncio.run(job())


def test_message_handled_while_the_app_stops_keeps_its_lease(app: App, nats_url: str, subject: str) -> None:
    first, seen = App(nats_url), keep(app, subject, lease=BEAT)
    began, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    orders = app.publisher(subject, Order)

    @first.subscriber(subject, durable="d", lease=BEAT)
    async def slow(order: Order) -> None:
        began.set()
        await go_on.wait()
        ended.set()

    async def within() -> None:
        async with asyncio.timeout(PATIENCE):
            await first.start()
            async with App(nats_url) as alone:
                await alone.link().publish(
                    subject,
                    b'{"id": 1}',
                    headers={},
                    content_type="application/json",
                    dedup_id=None,
                    delay=None,
                    partition=None,
                )
            await began.wait()
            stopping = asyncio.create_task(first.stop(grace=20))
            async with app:
                await let_run_out(js_of(app), subject, BEAT)
                go_on.set()
                await stopping
                await until_pending(js_of(app), subject, (0, 0))
                await orders.publish(Order(2))
                await until(lambda: seen)
                assert await seen[0].ack()
        assert ([one.payload for one in seen], ended.is_set()) == ([Order(2)], True)

    asyncio.run(within())


@pytest.mark.parametrize("what", ["retry", "term", "codec"])
def test_odd_outcome_is_one_messages_own(app: App, subject: str, what: str) -> None:
    calls: list[int] = []
    odd = {"retry": ackwise.Retry(delay=-1), "term": Term("\udc80"), "codec": ValueError("\udc80")}[what]

    class Odd:
        def reader(self, kind: object) -> object:
            return self.read

        def read(self, body: bytes) -> int:
            if what == "codec" and body == b"0":
                raise odd
            return int(body)

        def writer(self, kind: object) -> object:
            return lambda number: str(number).encode()

    numbers = app.publisher(subject, int)

    @app.subscriber(subject, durable="d", codec=Odd())  # type: ignore[arg-type]
    async def handle(number: int) -> None:
        calls.append(number)
        if not number and calls.count(0) == 1:
            raise odd

    async def job(app: App, js: JetStreamContext) -> None:
        for number in range(4):
            await numbers.publish(number)
        await until(lambda: {1, 2, 3} <= set(calls))
        await until_pending(js, subject, (0, 0))
        assert app.live
        assert sorted(calls) == {"retry": [0, 0, 1, 2, 3], "term": [0, 1, 2, 3], "codec": [1, 2, 3]}[what]

    run(app, job)


@pytest.mark.parametrize("durable", ["d", None])
@pytest.mark.parametrize("gone", ["consumer", "stream"])
def test_deleted_consumer_or_stream_is_created_again(
    app: App, subject: str, durable: str | None, gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable=durable)
    async def handle(order: Order) -> None:
        calls.append(order.id)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: calls == [1])
        (name,) = [one.name for one in await js.consumers_info(subject)]
        if gone == "stream":
            await js.delete_stream(subject)
        else:
            while (await js.consumer_info(subject, name)).num_ack_pending:
                await asyncio.sleep(0.01)
            await js.delete_consumer(subject, name)
        await orders.publish(Order(2))
        await until(lambda: 2 in calls)
        # A new durable one begins with what the stream still has.
        assert calls == ([1, 1, 2] if durable and gone == "consumer" else [1, 2])
        (told, *_) = [one.getMessage() for one in caplog.records if "trying again" in one.getMessage()]
        assert (told.startswith(f"{subject}: "), "\n" in told) == (True, False)

    run(app, job)


def test_app_without_its_consumer_is_not_ready(app: App, subject: str) -> None:
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)

    async def until_ready(wanted: bool) -> None:
        while await app.ready() != wanted:
            await asyncio.sleep(0.01)

    async def job(app: App, js: JetStreamContext) -> None:
        assert await app.ready()
        await js.delete_consumer(subject, "d")
        await js.add_consumer(subject, api.ConsumerConfig(durable_name="d", deliver_subject="elsewhere"))
        await until_ready(False)
        await js.delete_consumer(subject, "d")
        await until_ready(True)
        await orders.publish(Order(1))
        await until(lambda: seen)
        assert await seen[0].ack()

    run(app, job)


def test_handler_is_cancelled_at_ack_wait_without_server(tmp_path: Path, subject: str) -> None:
    """It releases nothing: that would be a nak for the message's next holder."""
    seen: list[int] = []
    cancelled: list[int] = []

    async def job(server: NATSServer) -> None:
        app = App(server.url, start_patience=5)

        @app.subscriber(subject, durable="d", lease=BEAT)
        async def handle(msg: Message[Order]) -> None:
            seen.append(msg.attempt)
            if msg.attempt > 1:
                await msg.ack()
                return
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(msg.attempt)
                raise

        async with running(app) as js:
            await app.publisher(subject, Order).publish(Order(1))
            await until(lambda: seen)
            server.kill()
            await until(lambda: cancelled)
            assert app.link().client.is_connected is False  # type: ignore[attr-defined]
            server.start()
            told = await answers_when_connected(app, subject)
            await until(lambda: len(seen) == 2)
            await until_pending(js, subject, (0, 0))
            assert (seen, cancelled, [one for one in told if one.startswith(b"-NAK")]) == ([1, 2], [1], [])

    with serving("-js", "-sd", str(tmp_path)) as server:
        asyncio.run(job(server))


async def answers_when_connected(app: App, stream: str) -> list[bytes]:
    while not app.link().client.is_connected:  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)
    return await answers(app, stream)


@pytest.mark.parametrize("durable", ["d", None])
def test_server_that_is_killed_and_comes_back_feeds_on(
    tmp_path: Path, durable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    # It does not take silence to notice.
    monkeypatch.setattr(pull, "SILENCE", 60.0)

    async def job() -> None:
        with serving("-js", "-sd", str(tmp_path)) as server:
            app = App(server.url)
            orders = app.publisher("orders", Order)

            @app.subscriber("orders", durable=durable, concurrency=4)
            async def handle(order: Order) -> None:
                calls.append(order.id)

            async with asyncio.timeout(PATIENCE), app:
                await orders.publish(Order(1))
                await until(lambda: calls == [1])
                server.kill()
                while await app.ready():
                    await asyncio.sleep(0.02)
                server.start()
                while not await app.ready():
                    await asyncio.sleep(0.02)
                await orders.publish(Order(2))
                await until(lambda: 2 in calls)

    asyncio.run(job())


def test_stopping_hands_back_at_once_and_spends_one_delivery(app: App, nats_url: str, subject: str) -> None:
    first, seen = App(nats_url), keep(app, subject)
    began = asyncio.Event()

    @first.subscriber(subject, durable="d", prefetch=3)
    async def stuck(order: Order) -> None:
        began.set()
        await asyncio.Event().wait()

    orders = app.publisher(subject, Order)

    async def within() -> None:
        async with asyncio.timeout(PATIENCE):
            await first.start()
            await app.connect()
            for number in range(3):
                await orders.publish(Order(number))
            await began.wait()
            while await pending(js_of(app), subject) != (3, 0):
                await asyncio.sleep(0.01)
            await first.stop(grace=0)
            await app.stop()
            async with running(app):
                await until(lambda: len(seen) == 3)
                assert [one.attempt for one in seen] == [2, 2, 2]

    asyncio.run(within())


def test_message_finished_during_two_stops_is_acked(app: App, nats_url: str, subject: str) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.subscriber(subject, durable="d")
    async def handle(order: Order) -> None:
        began.set()
        await go_on.wait()

    orders = app.publisher(subject, Order)

    async def job() -> None:
        await app.start()
        await orders.publish(Order(1))
        await began.wait()
        stops = [asyncio.create_task(app.stop(20)) for _ in range(2)]
        await asyncio.sleep(0.02)
        go_on.set()
        await asyncio.gather(*stops)
        async with running(App(nats_url)) as js, asyncio.timeout(PATIENCE):
            await until_pending(js, subject, (0, 0))

    asyncio.run(job())


@pytest.mark.long
def test_app_stopped_while_messages_arrive_leaves_nothing(app: App, nats_url: str, subject: str) -> None:
    """No consumer would get it during the ack wait, which is longer than this test.

    Long, because on a busy machine it failed once: JetStream itself may send to an inbox that was closed just before.
    """
    calls: list[int] = []

    def worker() -> App:
        made = App(nats_url)

        @made.subscriber(subject, durable="d", concurrency=2, prefetch=50)
        async def handle(order: Order) -> None:
            await asyncio.sleep(0)
            calls.append(order.id)

        return made

    async def job(app: App, js: JetStreamContext) -> None:
        await js.add_stream(name=subject, subjects=[subject])
        orders = app.publisher(subject, Order)
        await asyncio.gather(*(orders.publish(Order(number)) for number in range(1000)))
        for _ in range(10):
            one = worker()
            await one.start()
            enough = len(calls) + 20
            while len(calls) < min(enough, 1000):
                await asyncio.sleep(0)
            await one.stop(grace=0)
        async with worker():
            await until(lambda: set(calls) == set(range(1000)))
            await until_pending(js, subject, (0, 0))

    run(app, job)


def test_four_workers_handle_many_messages_once(app: App, subject: str) -> None:
    calls: list[int] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", concurrency=4)
    async def handle(order: Order) -> None:
        calls.append(order.id)
        await asyncio.sleep(0)

    async def job(app: App, js: JetStreamContext) -> None:
        await asyncio.gather(*(orders.publish(Order(number)) for number in range(500)))
        await until_pending(js, subject, (0, 0))
        assert sorted(calls) == list(range(500))
        assert ((await info(js, subject)).delivered or api.SequenceInfo(0, 0)).consumer_seq == 500

    run(app, job)


@pytest.mark.parametrize("fails", [False, True])
def test_message_acked_first_waits_for_no_settlement(
    app: App, subject: str, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", ack=AckPolicy.FIRST)
    async def handle(order: Order) -> None:
        calls.append(order.id)
        if fails:
            raise ValueError("no")

    async def job(app: App, js: JetStreamContext) -> None:
        for number in range(3):
            await orders.publish(Order(number))
        await until(lambda: len(calls) == 3)
        assert (calls, await pending(js, subject)) == ([0, 1, 2], (0, 0))

    run(app, job)
    assert "without settling" not in caplog.text


@pytest.mark.parametrize("settles", [False, True])
def test_consumer_that_waits_for_no_settlement_loses_nothing(
    app: App, nats_url: str, subject: str, settles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator made it so. A handler may take any time: no other consumer gets its message. Nor does what is left
    unsettled count as held."""
    monkeypatch.setattr(consumer, "ACK_WAIT", 0.06)
    calls: list[int] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", prefetch=1, max_pending=2)
    async def handle(msg: Message[Order]) -> None:
        # So long that the keeper of leases has looked at it, and at the next, several times.
        await asyncio.sleep(0 if calls else 0.2)
        calls.append(msg.payload.id)
        if settles:
            await msg.ack()

    async def job() -> None:
        async with running(App(nats_url)) as js:
            await js.add_stream(name=subject, subjects=[subject])
            await js.add_consumer(subject, durable_name="d", ack_policy=api.AckPolicy.NONE, filter_subject=subject)
        async with running(app):
            told = await answers(app, subject)
            for number in range(6):
                await orders.publish(Order(number))
            await until(lambda: len(calls) == 6)
            assert calls == list(range(6))
            assert b"+WPI" not in told

    asyncio.run(job())


def test_message_acked_first_is_handled_before_the_app_ends(app: App, nats_url: str, subject: str) -> None:
    calls: list[int] = []
    began, go_on = asyncio.Event(), asyncio.Event()
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", ack=AckPolicy.FIRST, concurrency=4)
    async def handle(order: Order) -> None:
        began.set()
        await go_on.wait()
        calls.append(order.id)

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), App(nats_url) as other:
            await app.start()
            await asyncio.gather(*(orders.publish(Order(number)) for number in range(20)))
            await began.wait()
            stopping = asyncio.create_task(app.stop(grace=20))
            await asyncio.sleep(0)
            go_on.set()
            await stopping
            handed = (await info(js_of(other), subject)).delivered
            assert handed is not None
            assert sorted(calls) == list(range(handed.consumer_seq))

    asyncio.run(job())
