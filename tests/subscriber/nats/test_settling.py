"""What holds on our broker holds on JetStream, but for the rows of `test_differences`."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from nats.js import JetStreamContext

from ackwise import errors
from ackwise.subscriber import AckPolicy, App, Message, Nak, Term
from tests.subscriber.conftest import until
from tests.subscriber.nats.conftest import pending, run, until_pending

WAIT = 0.5
"""Of the consumers that a test lets run out."""


@dataclass
class Order:
    id: int


def keep(app: App, subject: str, **options: Any) -> list[Message[Order]]:
    seen: list[Message[Order]] = []

    @app.subscriber(subject, durable="d", **options)
    async def handle(msg: Message[Order]) -> None:
        seen.append(msg)

    return seen


def test_ack_twice_both_succeed_and_it_is_not_delivered_again_past_the_deadline(app: App, subject: str) -> None:
    seen = keep(app, subject, lease=WAIT)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: seen)
        assert (await seen[0].ack(), await seen[0].ack()) == (True, False)
        await asyncio.sleep(2 * WAIT)
        assert (len(seen), await pending(js, subject)) == (1, (0, 0))
        assert (seen[0].attempt, seen[0].queue, seen[0].payload) == (1, subject, Order(1))

    run(app, job)


def test_the_first_settlement_wins(app: App, subject: str) -> None:
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        for number in range(4):
            await orders.publish(Order(number))
        await until(lambda: len(seen) == 4)
        nakked, acked, termed, raced = seen
        assert [await nakked.nak(), await nakked.nak(), await nakked.ack()] == [True, False, False]
        assert [await acked.ack(), await acked.nak()] == [True, False]
        assert [await termed.term("no"), await termed.ack(), await termed.nak()] == [True, False, False]
        assert sorted(await asyncio.gather(*(raced.ack() for _ in range(5)), raced.nak())) == [False] * 5 + [True]
        await until(lambda: len(seen) == 5)
        assert (seen[4].payload, seen[4].attempt) == (Order(0), 2)
        assert await seen[4].ack()
        await until_pending(js, subject, (0, 0))

    run(app, job)


def test_a_nak_waits_exactly_as_long_as_it_says(app: App, subject: str) -> None:
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)
    times: list[float] = []

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: seen)
        times.append(time.monotonic())
        await seen[0].nak(0.3)
        await until(lambda: len(seen) == 2)
        assert time.monotonic() - times[0] >= 0.3
        await seen[1].nak(0)
        await until(lambda: len(seen) == 3)
        with pytest.raises(errors.BadInput, match="delay"):
            await seen[2].nak(-1)
        assert await seen[2].ack()

    run(app, job)


def test_implicit_success_exception_nak_and_term(app: App, subject: str) -> None:
    calls: list[int] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", concurrency=4)
    async def handle(order: Order) -> None:
        calls.append(order.id)
        if calls.count(order.id) == 1 and order.id:
            raise (ValueError("no"), Nak(0.05), Term("never"))[order.id - 1]

    async def job(app: App, js: JetStreamContext) -> None:
        for number in range(4):
            await orders.publish(Order(number))
        await until(lambda: len(calls) == 6)
        await until_pending(js, subject, (0, 0))
        assert sorted(calls) == [0, 1, 1, 2, 2, 3]

    run(app, job)


def test_manual_and_unsettled_messages_come_back_after_the_ack_wait(
    app: App, subject: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen = keep(app, subject, lease=WAIT)
    calls: list[int] = []
    orders, others = app.publisher(subject, Order), app.publisher(f"{subject}m", Order)

    @app.subscriber(f"{subject}m", durable="d", ack=AckPolicy.MANUAL, lease=WAIT)
    async def look(order: Order) -> None:
        calls.append(order.id)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await others.publish(Order(2))
        await until(lambda: len(seen) >= 2 and len(calls) >= 2)
        assert [one.attempt for one in seen][:2] == [1, 2]
        warned = [one for one in caplog.records if one.levelno == logging.WARNING and seen[0].id in one.getMessage()]
        assert len(warned) >= 2

    run(app, job)


@pytest.mark.parametrize("how", ["ack", "nak"])
def test_what_was_settled_before_an_exception_stands(app: App, subject: str, how: str) -> None:
    calls: list[int] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", lease=WAIT)
    async def handle(msg: Message[Order]) -> None:
        calls.append(msg.attempt)
        await (msg.ack() if how == "ack" or msg.attempt > 1 else msg.nak(0.1))
        raise RuntimeError("afterwards")

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: calls)
        await asyncio.sleep(2 * WAIT)
        assert (calls, await pending(js, subject)) == ([1] if how == "ack" else [1, 2], (0, 0))

    run(app, job)


def test_cloud_events_may_be_absent_but_not_of_another_version(app: App, subject: str) -> None:
    seen = keep(app, subject)

    async def job(app: App, js: JetStreamContext) -> None:
        await js.publish(subject, b'{"id": 1}', headers={"ce-specversion": "0.3"})
        await js.publish(subject, b'{"id": 2}')
        await until(lambda: seen)
        assert ([one.payload for one in seen], seen[0].headers) == ([Order(2)], {})
        assert await seen[0].ack()
        await until_pending(js, subject, (0, 0))

    run(app, job)


def test_the_same_decorator_serves_both_only_the_parameter_changes(app: App, subject: str) -> None:
    calls: list[str] = []

    @app.subscriber(subject, durable="d")
    async def before(order: Order) -> None:
        calls.append(f"implicit {order.id}")

    @app.subscriber(subject, durable="e")
    async def after(msg: Message[Order]) -> None:
        calls.append(f"explicit {msg.payload.id}")
        await msg.ack()

    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: len(calls) == 2)
        await until_pending(js, subject, (0, 0))
        assert sorted(calls) == ["explicit 1", "implicit 1"]

    run(app, job)


def test_in_progress_holds_a_message_while_its_handler_works(app: App, subject: str) -> None:
    calls: list[int] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", lease=WAIT, concurrency=2)
    async def slow(msg: Message[Order]) -> None:
        calls.append(msg.attempt)
        assert await msg.extend()
        await asyncio.sleep(3 * WAIT)
        assert await msg.ack()

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: calls)
        await until_pending(js, subject, (0, 0))
        assert calls == [1]

    run(app, job)


def test_threads_settle_and_functions_run_in_threads(app: App, subject: str) -> None:
    orders = app.publisher(subject, Order)
    answers: list[bool] = []
    executor = ThreadPoolExecutor(2)

    @app.subscriber(subject, durable="d")
    def handle(msg: Message[Order]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        executor.submit(lambda: answers.append(msg.ack_threadsafe()))
        executor.submit(lambda: answers.append(msg.ack_threadsafe()))

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: len(answers) == 2)
        await until_pending(js, subject, (0, 0))
        assert sorted(answers) == [False, True]

    run(app, job)
    executor.shutdown()


@pytest.mark.parametrize("explicit", [False, True])
def test_undecodable_is_terminated_and_nobody_is_called(app: App, subject: str, explicit: bool) -> None:
    calls: list[Any] = []
    raw = app.publisher(subject, bytes)

    async def wrapped(msg: Message[Order]) -> None:
        calls.append(msg)

    async def implicit(order: Order) -> None:
        calls.append(order)

    app.subscriber(subject, durable="d")(wrapped if explicit else implicit)

    async def job(app: App, js: JetStreamContext) -> None:
        reasons: list[bytes] = []

        async def note(msg: Any) -> None:
            reasons.append(msg.data)

        await app.link().client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>", cb=note)  # type: ignore[attr-defined]
        await raw.publish(b'{"id": "x"}')
        await until(lambda: any(subject.encode() in one for one in reasons))
        assert b"undecodable: Expected `int`" in next(one for one in reasons if subject.encode() in one)
        assert (calls, await pending(js, subject)) == ([], (0, 0))

    run(app, job)


def test_cloud_events_headers_travel_and_a_dedup_id_stores_once(app: App, subject: str) -> None:
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        first = await orders.publish(Order(1), headers={"colour": "red"}, dedup_id="a")
        assert await orders.publish(Order(1), dedup_id="a") == first
        await until(lambda: seen)
        headers = seen[0].headers
        assert (headers["colour"], headers["ce-type"], headers["content-type"]) == ("red", "Order", "application/json")
        assert seen[0].id == first == f"{subject}.1"
        assert seen[0].deadline is not None
        assert await seen[0].ack()
        with pytest.raises(errors.BadInput, match="no delayed"):
            await orders.publish(Order(1), delay=1)

    run(app, job)


def test_ephemeral_consumers_get_everything_durable_ones_share(app: App, nats_url: str, subject: str) -> None:
    apps = [App(nats_url), App(nats_url)]
    alone: list[list[int]] = [[], []]
    shared: list[int] = []
    for one, seen in zip(apps, alone, strict=True):

        async def mine(order: Order, seen: list[int] = seen) -> None:
            seen.append(order.id)

        async def ours(order: Order) -> None:
            shared.append(order.id)

        one.subscriber(subject)(mine)
        one.subscriber(subject, durable="d")(ours)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        async with apps[0], apps[1]:
            for number in range(5):
                await orders.publish(Order(number))
            await until(lambda: len(alone[0]) == len(alone[1]) == 5)
            await until(lambda: len(shared) == 5)
        assert (sorted(alone[0]), sorted(alone[1]), sorted(shared)) == (list(range(5)),) * 3

    run(app, job)


def test_stopping_hands_back_at_once(app: App, nats_url: str, subject: str) -> None:
    first, seen = App(nats_url), keep(app, subject)
    began = asyncio.Event()

    @first.subscriber(subject, durable="d", prefetch=3)
    async def stuck(order: Order) -> None:
        began.set()
        await asyncio.Event().wait()

    orders = app.publisher(subject, Order)

    async def within() -> None:
        async with asyncio.timeout(30):
            await first.start()
            await app.connect()
            for number in range(3):
                await orders.publish(Order(number))
            await began.wait()
            await first.stop(grace=0)
            await app.stop()
            async with app:
                await until(lambda: len(seen) == 3)

    asyncio.run(within())


def test_a_server_that_is_not_there(subject: str) -> None:
    app = App("nats://127.0.0.1:1", start_patience=0.3)

    async def job() -> None:
        with pytest.raises(errors.StoreUnavailable, match=r"no NATS server answers at nats://127.0.0.1:1.*tried"):
            await app.start()

    asyncio.run(job())
