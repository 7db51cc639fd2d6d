"""Where JetStream behaves differently from our engine, its own behaviour is pinned here, and told in the guide."""

from __future__ import annotations

import asyncio
import json

import pytest
from nats.js import JetStreamContext

from ackwise import errors
from ackwise.subscriber import AckPolicy, App, Message
from tests.patience import PATIENCE
from tests.subscriber.conftest import until
from tests.subscriber.nats.conftest import (
    Order,
    answers,
    hear,
    info,
    js_of,
    keep,
    let_run_out,
    pending,
    run,
    until_pending,
)

SHORT = 0.2


def test_plain_nak_ignores_the_backoff(app: App, subject: str) -> None:
    """It is back at once, although the backoff says in an hour."""
    attempts: list[int] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", backoff=(3600, 3600.5), retry_limit=3)
    async def handle(msg: Message[Order]) -> None:
        attempts.append(msg.attempt)
        await (msg.nak() if msg.attempt == 1 else msg.ack())

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: attempts == [1, 2])
        assert (await info(js, subject)).config.backoff == [3600, 3600.5]

    run(app, job)


def test_backoff_is_how_long_it_waits_for_a_settlement(app: App, subject: str) -> None:
    seen = keep(app, subject, backoff=(SHORT, 2 * SHORT))
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: len(seen) >= 4)
        assert [one.attempt for one in seen[:4]] == [1, 2, 3, 4]
        config = (await info(js, subject)).config
        assert (config.ack_wait, config.backoff) == (SHORT, [SHORT, 2 * SHORT])
        assert await seen[-1].ack()

    run(app, job)


def test_settling_without_ack_policy_does_nothing(app: App, subject: str) -> None:
    settled: list[bool] = []
    orders = app.publisher(subject, Order)

    async def settle(msg: Message[Order], call_next: object) -> None:
        assert msg.deadline is None
        settled.extend([await msg.nak(), await msg.ack()])

    app.middleware.append(settle)

    @app.subscriber(subject, durable="d", ack=AckPolicy.FIRST)
    async def handle(order: Order) -> None: ...

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: settled)
        await let_run_out(js, subject, SHORT)
        assert settled == [True, False]

    run(app, job)


def test_late_ack_wins(app: App, subject: str) -> None:
    seen = keep(app, subject, lease=1.5)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: len(seen) == 2)
        first, second = seen
        assert await first.ack()
        await until_pending(js, subject, (0, 0))
        await let_run_out(js, subject, 1.5)
        assert ([one.attempt for one in seen], await second.ack()) == ([1, 2], True)

    run(app, job)


@pytest.mark.parametrize("silent", [False, True])
def test_exhausted_messages_stay_in_stream_undelivered(app: App, subject: str, silent: bool) -> None:
    calls: list[int] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", retry_limit=2, lease=SHORT, ack=AckPolicy.MANUAL if silent else None)
    async def handle(order: Order) -> None:
        calls.append(order.id)
        if not silent:
            raise ValueError("no")

    async def job(app: App, js: JetStreamContext) -> None:
        told = await hear(app, f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{subject}.d")
        await orders.publish(Order(1))
        await until(lambda: len(calls) == 2)
        await let_run_out(js, subject, SHORT)
        assert (calls, (await pending(js, subject))[1]) == ([1, 1], 0)
        assert (await js.stream_info(subject)).state.messages == 1
        assert (await info(js, subject)).ack_floor.stream_seq == 0  # type: ignore[union-attr]
        if silent:
            await until(lambda: told)
            assert json.loads(told[0])["deliveries"] == 2

    run(app, job)


def test_terminated_message_causes_an_advisory(app: App, subject: str) -> None:
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        told = await hear(app, f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{subject}.d")
        await orders.publish(Order(1))
        await until(lambda: seen)
        assert await seen[0].term("never\nagain \udc80")
        await until(lambda: told)
        assert json.loads(told[0])["reason"] == "never again ?"
        assert await pending(js, subject) == (0, 0)

    run(app, job)


def test_extend_is_by_the_ack_wait_whatever_is_asked_for(app: App, subject: str) -> None:
    seen = keep(app, subject, lease=SHORT)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        told = await answers(app, subject)
        await orders.publish(Order(1))
        await until(lambda: seen)
        assert await seen[0].extend(3600)
        await until(lambda: len(seen) >= 2)
        assert set(told) == {b"+WPI"}
        with pytest.raises(errors.BadInput):
            await seen[0].extend(-1)

    run(app, job)


def test_release_spends_a_delivery(app: App, nats_url: str, subject: str) -> None:
    """With one delivery allowed, what is given back when the app stops is never handled again."""
    calls: list[int] = []
    first, orders = App(nats_url), app.publisher(subject, Order)
    began = asyncio.Event()

    @first.subscriber(subject, durable="d", retry_limit=1)
    async def stuck(order: Order) -> None:
        began.set()
        await asyncio.Event().wait()

    @app.subscriber(subject, durable="d", retry_limit=1)
    async def handle(order: Order) -> None:
        calls.append(order.id)

    async def job() -> None:
        async with asyncio.timeout(PATIENCE):
            await first.start()
            await app.connect()
            await orders.publish(Order(1))
            await began.wait()
            await first.stop(grace=0)
            await app.stop()
            async with app:
                await orders.publish(Order(2))
                await until(lambda: 2 in calls)
                assert (calls, (await js_of(app).stream_info(subject)).state.messages) == ([2], 2)

    asyncio.run(job())


def test_ack_is_sent_and_not_waited_for(app: App, subject: str) -> None:
    """Also when the consumer is gone: True says that it was sent."""
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: seen)
        await js.delete_consumer(subject, "d")
        assert await seen[0].ack()

    run(app, job)
