"""Where JetStream behaves differently from our engine, its own behaviour is pinned here, and told in the guide."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from nats.js import JetStreamContext

from ackwise.subscriber import AckPolicy, App, Message
from tests.subscriber.conftest import until
from tests.subscriber.nats.conftest import pending, run, until_pending

WAIT = 0.5


@dataclass
class Order:
    id: int


def test_a_plain_nak_ignores_the_backoff(app: App, subject: str) -> None:
    times: list[float] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", backoff=(5, 5), retry_limit=3)
    async def handle(msg: Message[Order]) -> None:
        times.append(time.monotonic())
        await (msg.nak() if msg.attempt == 1 else msg.ack())

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: len(times) == 2)
        assert times[1] - times[0] < 5

    run(app, job)


def test_without_an_ack_policy_settling_raises_nothing_and_does_nothing(app: App, subject: str) -> None:
    answers: list[bool] = []
    orders = app.publisher(subject, Order)

    async def settle(msg: Message[Order], call_next: object) -> None:
        answers.extend([await msg.nak(), await msg.ack()])

    app.middleware.append(settle)

    @app.subscriber(subject, durable="d", ack=AckPolicy.FIRST)
    async def handle(order: Order) -> None: ...

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: answers)
        await asyncio.sleep(WAIT)
        assert answers == [True, False]

    run(app, job)


def test_a_late_ack_wins(app: App, subject: str) -> None:
    seen: list[Message[Order]] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", lease=WAIT)
    async def keep(msg: Message[Order]) -> None:
        seen.append(msg)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: len(seen) == 2)
        assert await seen[0].ack()
        await until_pending(js, subject, (0, 0))
        await asyncio.sleep(2 * WAIT)
        assert len(seen) == 2

    run(app, job)


def test_exhausted_messages_stay_in_the_stream_and_are_nobodys(app: App, subject: str) -> None:
    calls: list[int] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", retry_limit=2)
    async def handle(order: Order) -> None:
        calls.append(order.id)
        raise ValueError("no")

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: len(calls) == 2)
        await asyncio.sleep(WAIT)
        assert (calls, (await pending(js, subject))[1]) == ([1, 1], 0)
        assert (await js.stream_info(subject)).state.messages == 1

    run(app, job)
