"""What holds on our broker holds on JetStream, but for the rows of `test_differences`."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import pytest
from nats.js import JetStreamContext
from pydantic import BaseModel

from ackwise import errors
from ackwise.core.validation import Seconds
from ackwise.subscriber import AckPolicy, App, Depends, Message, Nak, Term
from tests.subscriber.conftest import until
from tests.subscriber.nats.conftest import (
    Order,
    answers,
    hear,
    info,
    keep,
    let_run_out,
    pending,
    run,
    until_pending,
)

SHORT = 0.2
"""The ack wait of consumers whose messages shall run out."""
LONG = 2.5
"""The ack wait of consumers whose messages are settled before, on any machine."""


def test_second_ack_succeeds_without_redelivery(app: App, subject: str) -> None:
    seen = keep(app, subject, lease=LONG)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        told = await answers(app, subject)
        await orders.publish(Order(1))
        await until(lambda: seen)
        assert (await seen[0].ack(), await seen[0].ack()) == (True, False)
        await let_run_out(js, subject, LONG)
        assert (len(seen), await pending(js, subject), told) == (1, (0, 0), [b"+ACK"])
        assert (seen[0].attempt, seen[0].queue, seen[0].payload) == (1, subject, Order(1))

    run(app, job)


def test_first_settlement_wins(app: App, subject: str) -> None:
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        told = await answers(app, subject)
        for number in range(4):
            await orders.publish(Order(number))
        await until(lambda: len(seen) == 4)
        nakked, acked, termed, raced = seen
        assert [await nakked.nak(), await nakked.nak(), await nakked.ack()] == [True, False, False]
        assert [await acked.ack(), await acked.nak()] == [True, False]
        assert [await termed.term("no"), await termed.ack(), await termed.nak(), await termed.term()] == [
            True,
            False,
            False,
            False,
        ]
        assert sorted(await asyncio.gather(*(raced.ack() for _ in range(5)), raced.nak())) == [False] * 5 + [True]
        await until(lambda: len(seen) == 5)
        assert (seen[4].payload, seen[4].attempt) == (Order(0), 2)
        assert await seen[4].ack()
        await until_pending(js, subject, (0, 0))
        assert told == [b"-NAK", b"+ACK", b"+TERM no", b"+ACK", b"+ACK"]

    run(app, job)


@pytest.mark.parametrize(
    ("delay", "told"),
    [
        (None, b"-NAK"),
        (0, b"-NAK"),
        (0.2, b'-NAK {"delay":200000000}'),
        (timedelta(seconds=0.2), b'-NAK {"delay":200000000}'),
    ],
)
def test_nak_says_how_long_to_wait(app: App, subject: str, delay: Seconds | None, told: bytes) -> None:
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        heard = await answers(app, subject)
        await orders.publish(Order(1))
        await until(lambda: seen)
        assert await seen[0].nak(delay)
        await until(lambda: len(seen) == 2)
        with pytest.raises(errors.BadInput, match="delay"):
            await seen[1].nak(-1)
        assert await seen[1].ack()
        await until(lambda: len(heard) == 2)
        assert (heard, [one.attempt for one in seen]) == ([told, b"+ACK"], [1, 2])

    run(app, job)


def test_long_delay_exceeds_short_delay_and_ack_wait(app: App, subject: str) -> None:
    """By the order in which they come back: the first does not before the test is over."""
    seen = keep(app, subject, lease=LONG)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        for number in (1, 2):
            await orders.publish(Order(number))
        await until(lambda: len(seen) == 2)
        assert await seen[0].nak(3600)
        assert await seen[1].nak(0.1)
        await until(lambda: len(seen) == 3)
        assert await seen[2].ack()
        await let_run_out(js, subject, LONG)
        assert [(one.payload.id, one.attempt) for one in seen] == [(1, 1), (2, 1), (2, 2)]
        await until_pending(js, subject, (1, 0))

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
        told = await answers(app, subject)
        for number in range(4):
            await orders.publish(Order(number))
        await until(lambda: len(calls) == 6)
        await until_pending(js, subject, (0, 0))
        assert sorted(calls) == [0, 1, 1, 2, 2, 3]
        assert sorted(told) == [*[b"+ACK"] * 3, b"+TERM never", b"-NAK", b'-NAK {"delay":50000000}']

    run(app, job)


def test_manual_unsettled_messages_return_after_ack_wait(
    app: App, subject: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen = keep(app, subject, lease=SHORT)
    calls: list[int] = []
    orders, others = app.publisher(subject, Order), app.publisher(f"{subject}m", Order)

    @app.subscriber(f"{subject}m", durable="d", ack=AckPolicy.MANUAL, lease=SHORT)
    async def look(order: Order) -> None:
        calls.append(order.id)

    async def job(app: App, js: JetStreamContext) -> None:
        told = await answers(app, "*")
        await orders.publish(Order(1))
        await others.publish(Order(2))
        await until(lambda: len(seen) >= 2 and len(calls) >= 2)
        assert [one.attempt for one in seen][:2] == [1, 2]
        warned = [one for one in caplog.records if one.levelno == logging.WARNING and seen[0].id in one.getMessage()]
        assert len(warned) >= 2
        assert not [one for one in told if one != b"+WPI"]

    run(app, job)


@pytest.mark.parametrize("how", ["ack", "nak"])
def test_settlement_before_an_exception_stands(app: App, subject: str, how: str) -> None:
    calls: list[int] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", lease=LONG)
    async def handle(msg: Message[Order]) -> None:
        calls.append(msg.attempt)
        await (msg.ack() if how == "ack" or msg.attempt > 1 else msg.nak(0.1))
        raise RuntimeError("afterwards")

    async def job(app: App, js: JetStreamContext) -> None:
        told = await answers(app, subject)
        await orders.publish(Order(1))
        await until(lambda: len(calls) == (1 if how == "ack" else 2))
        await let_run_out(js, subject, LONG)
        assert (calls, await pending(js, subject)) == ([1] if how == "ack" else [1, 2], (0, 0))
        assert told == ([] if how == "ack" else [b'-NAK {"delay":100000000}']) + [b"+ACK"]

    run(app, job)


def test_message_may_be_settled_after_its_handler_returned(app: App, subject: str) -> None:
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: seen)
        assert ((await info(js, subject)).ack_floor.stream_seq, await pending(js, subject)) == (0, (1, 0))  # type: ignore[union-attr]
        assert await seen[0].ack()
        await until_pending(js, subject, (0, 0))
        assert (await info(js, subject)).ack_floor.stream_seq == 1  # type: ignore[union-attr]

    run(app, job)


@pytest.mark.parametrize("version", ["0.3", "1.0", None])
def test_cloud_events_may_be_absent_but_not_of_another_version(app: App, subject: str, version: str | None) -> None:
    seen = keep(app, subject)
    headers = {} if version is None else {"ce-specversion": version, "ce-id": "1", "ce-type": "t", "ce-source": "s"}

    async def job(app: App, js: JetStreamContext) -> None:
        told = await answers(app, subject)
        await js.publish(subject, b'{"id": 1}', headers=headers or None)
        await js.publish(subject, b'{"id": 2}')
        await until(lambda: any(one.payload == Order(2) for one in seen))
        assert [one.payload.id for one in seen] == ([2] if version == "0.3" else [1, 2])
        assert seen[0].headers == ({} if version == "0.3" else headers)
        for one in seen:
            assert await one.ack()
        await until_pending(js, subject, (0, 0))
        assert [one.split()[0] for one in told] == [b"+TERM" if version == "0.3" else b"+ACK", b"+ACK"]

    run(app, job)


def test_cloud_events_may_be_required(app: App, subject: str) -> None:
    app.cloudevents = "require"
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        await js.publish(subject, b'{"id": 1}')
        await orders.publish(Order(2))
        await until(lambda: seen)
        assert [one.payload.id for one in seen] == [2]
        assert await seen[0].ack()
        await until_pending(js, subject, (0, 0))

    run(app, job)


def test_same_decorator_serves_implicit_and_explicit(app: App, subject: str) -> None:
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


class Invoice(BaseModel):
    id: int


class Parcel(msgspec.Struct):
    id: int


async def doubled(msg: Message[Any]) -> int:
    return 2 * int(msg.headers["number"])


def test_every_kind_of_signature_is_served(app: App, subject: str) -> None:
    seen: dict[str, Any] = {}

    @app.subscriber(subject, durable="bare")
    async def bare(msg: Message) -> None:  # type: ignore[type-arg]
        seen["bare"] = msg.payload
        await msg.ack()

    @app.subscriber(subject, durable="bytes")
    async def raw(body: bytes) -> None:
        seen["raw"] = body

    @app.subscriber(subject, durable="dict")
    async def anything(order: dict[str, int]) -> None:
        seen["dict"] = order

    @app.subscriber(subject, durable="model")
    async def model(msg: Message[Invoice]) -> None:
        seen["model"] = msg.payload
        await msg.ack()

    @app.subscriber(subject, durable="struct")
    def struct(parcel: Annotated[Parcel, "noted"]) -> None:
        seen["struct"] = parcel

    @app.subscriber(subject, durable="needs")
    async def needs(order: Order, twice: Annotated[int, Depends(doubled)], more: int = 5) -> None:
        seen["needs"] = (order, twice, more)

    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1), headers={"number": "21"})
        await until(lambda: len(seen) == 6)
        assert seen == {
            "bare": b'{"id":1}',
            "raw": b'{"id":1}',
            "dict": {"id": 1},
            "model": Invoice(id=1),
            "struct": Parcel(1),
            "needs": (Order(1), 42, 5),
        }

    run(app, job)


def test_in_progress_holds_a_message_while_its_handler_works(app: App, subject: str) -> None:
    calls: list[int] = []
    go_on = asyncio.Event()
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", lease=LONG)
    async def slow(msg: Message[Order]) -> None:
        calls.append(msg.attempt)
        assert await msg.extend()
        await go_on.wait()
        assert await msg.ack()

    async def job(app: App, js: JetStreamContext) -> None:
        told = await answers(app, subject)
        await orders.publish(Order(1))
        await until(lambda: calls)
        await let_run_out(js, subject, LONG)
        go_on.set()
        await until_pending(js, subject, (0, 0))
        # One was asked for, the others keep it alive by themselves.
        assert (calls, told[:2], told[-1]) == ([1], [b"+WPI", b"+WPI"], b"+ACK")

    run(app, job)


def test_threads_settle_and_functions_run_in_threads(app: App, subject: str) -> None:
    orders = app.publisher(subject, Order)
    settled: list[bool] = []
    executor = ThreadPoolExecutor(2)

    @app.subscriber(subject, durable="d")
    def handle(msg: Message[Order]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        executor.submit(lambda: settled.append(msg.ack_threadsafe()))
        executor.submit(lambda: settled.append(msg.ack_threadsafe()))

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: len(settled) == 2)
        await until_pending(js, subject, (0, 0))
        assert sorted(settled) == [False, True]

    run(app, job)
    executor.shutdown()


@pytest.mark.parametrize("explicit", [False, True])
def test_undecodable_is_terminated_without_a_call(app: App, subject: str, explicit: bool) -> None:
    calls: list[Any] = []
    raw = app.publisher(subject, bytes)

    async def wrapped(msg: Message[Order]) -> None:
        calls.append(msg)

    async def implicit(order: Order) -> None:
        calls.append(order)

    app.subscriber(subject, durable="d")(wrapped if explicit else implicit)

    async def job(app: App, js: JetStreamContext) -> None:
        reasons = await hear(app, f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{subject}.d")
        await raw.publish(b'{"id": "x"}')
        await until(lambda: reasons)
        assert b"undecodable: Expected `int`, got `str`" in reasons[0]
        assert (calls, await pending(js, subject)) == ([], (0, 0))

    run(app, job)


def test_undecodable_may_be_tried_again(app: App, subject: str) -> None:
    calls: list[Order] = []
    raw = app.publisher(subject, bytes)

    @app.subscriber(subject, durable="d", on_undecodable="nak", retry_limit=3)
    async def handle(order: Order) -> None:
        calls.append(order)

    async def job(app: App, js: JetStreamContext) -> None:
        told = await answers(app, subject)
        await raw.publish(b'{"id": "x"}')
        await until(lambda: len(told) == 3)
        assert (told, calls) == ([b"-NAK"] * 3, [])

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
        assert (await js.stream_info(subject)).state.messages == 1

    run(app, job)


def test_unpublishable_value_is_refused_and_not_stored(app: App, subject: str) -> None:
    orders, numbers = app.publisher(subject, Order), app.publisher(subject, int)

    @asynccontextmanager
    async def nothing_stored(js: JetStreamContext) -> Any:
        yield
        assert (await js.stream_info(subject)).state.messages == 0

    async def job(app: App, js: JetStreamContext) -> None:
        await js.add_stream(name=subject, subjects=[subject])
        async with nothing_stored(js):
            with pytest.raises(errors.BadInput, match="nothing to publish"):
                await orders.publish(None)  # type: ignore[arg-type]
        async with nothing_stored(js):
            with pytest.raises(Exception, match="object"):
                await numbers.publish(object())  # type: ignore[arg-type]
        for unknown in ({"delay": 1}, {"partition": "p"}):
            async with nothing_stored(js):
                with pytest.raises(errors.BadInput, match="no delayed messages and no partitions"):
                    await orders.publish(Order(1), **unknown)

    run(app, job)
