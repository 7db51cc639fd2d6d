"""How JetStream itself behaves under the subscriber: what it was observed to do is pinned."""

from __future__ import annotations

import asyncio

import pytest
from nats.js import JetStreamContext, api

from ackwise.subscriber import App, Message
from tests.subscriber.conftest import until
from tests.subscriber.nats.conftest import (
    Order,
    answers,
    info,
    js_of,
    keep,
    let_run_out,
    pending,
    run,
    running,
    until_pending,
)

SHORT = 0.2


def test_server_has_the_version_that_was_observed(app: App) -> None:
    async def job(app: App, js: JetStreamContext) -> None:
        version = app.link().client.connected_server_version  # type: ignore[attr-defined]
        assert (version.major, version.minor) >= (2, 15)

    run(app, job)


def test_redelivery_has_own_reply_and_names_its_attempt(app: App, subject: str) -> None:
    seen = keep(app, subject, lease=SHORT)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: len(seen) >= 2)
        replies = [one._delivery.reply.split(".") for one in seen[:2]]  # type: ignore[attr-defined]
        # $JS.ACK.stream.consumer.attempt.sequence in the stream.sequence of deliveries.time.pending
        assert [reply[2:7] for reply in replies] == [[subject, "d", "1", "1", "1"], [subject, "d", "2", "1", "2"]]
        assert seen[0].id == seen[1].id == f"{subject}.1"
        assert seen[0].enqueued_at == seen[1].enqueued_at

    run(app, job)


def test_ack_wins_over_a_nak_that_waits(app: App, subject: str) -> None:
    """The wrapper sends no second answer; JetStream itself takes the ack."""
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: seen)
        assert await seen[0].nak(3600)
        await until_pending(js, subject, (1, 0))
        await app.link().client.publish(seen[0]._delivery.reply, b"+ACK")  # type: ignore[attr-defined]
        await until_pending(js, subject, (0, 0))
        assert (await info(js, subject)).ack_floor.stream_seq == 1  # type: ignore[union-attr]

    run(app, job)


def test_repeated_and_contrary_answers_change_nothing(app: App, subject: str) -> None:
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: seen)
        assert await seen[0].ack()
        client = app.link().client  # type: ignore[attr-defined]
        for answer in (b"+ACK", b"-NAK", b"+TERM", b"+WPI"):
            await client.publish(seen[0]._delivery.reply, answer)  # type: ignore[attr-defined]
        await let_run_out(js, subject, SHORT)
        assert (len(seen), await pending(js, subject)) == (1, (0, 0))

    run(app, job)


def test_core_nats_publish_still_reaches_the_stream(app: App, subject: str) -> None:
    seen = keep(app, subject)

    async def job(app: App, js: JetStreamContext) -> None:
        await app.link().client.publish(subject, b'{"id": 7}')  # type: ignore[attr-defined]
        await until(lambda: seen)
        assert (seen[0].payload, seen[0].headers, await seen[0].ack()) == (Order(7), {}, True)
        await until_pending(js, subject, (0, 0))

    run(app, job)


@pytest.mark.parametrize("settled", ["nak", "expired"])
def test_redelivered_message_is_handled_beside_the_others(app: App, subject: str, settled: str) -> None:
    """Where it comes in again is JetStream's matter; nothing is left out and nothing else is repeated."""
    order_of_calls: list[tuple[int, int]] = []
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d", prefetch=0, lease=1)
    async def handle(msg: Message[Order]) -> None:
        order_of_calls.append((msg.payload.id, msg.attempt))
        if order_of_calls[-1] != (0, 1):
            await msg.ack()
        elif settled == "nak":
            await msg.nak()

    async def job(app: App, js: JetStreamContext) -> None:
        await asyncio.gather(*(orders.publish(Order(number)) for number in range(4)))
        await until(lambda: len(order_of_calls) == 5)
        await until_pending(js, subject, (0, 0))
        assert sorted(order_of_calls) == [(0, 1), (0, 2), (1, 1), (2, 1), (3, 1)]

    run(app, job)


def test_max_ack_pending_one_holds_next_until_settlement(app: App, nats_url: str, subject: str) -> None:
    """Also between apps: JetStream's form of a lock."""
    other = App(nats_url)
    seen, theirs = keep(app, subject, max_pending=1), keep(other, subject, max_pending=1)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        async with other:
            for number in range(3):
                await orders.publish(Order(number))
            for number in range(3):
                await until(lambda: any(not one.settled for one in seen + theirs))
                await until_pending(js, subject, (1, 2 - number))  # JetStream counts a stored message a moment later
                (held,) = [one for one in seen + theirs if not one.settled]
                assert (held.payload, await held.ack()) == (Order(number), True)
            await until_pending(js, subject, (0, 0))

    run(app, job)


@pytest.mark.parametrize("how", ["ack", "term", "nak"])
def test_work_queue_lets_go_of_what_is_settled(app: App, subject: str, how: str) -> None:
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)

    async def job() -> None:
        await app.connect()
        await js_of(app).add_stream(name=subject, subjects=[subject], retention=api.RetentionPolicy.WORK_QUEUE)
        await app.stop()
        async with running(app) as js:
            await orders.publish(Order(1))
            await until(lambda: seen)
            await {"ack": seen[0].ack, "term": seen[0].term, "nak": seen[0].nak}[how]()
            if how == "nak":
                await until(lambda: len(seen) == 2)
                assert (await js.stream_info(subject)).state.messages == 1
            else:
                while (await js.stream_info(subject)).state.messages:
                    await asyncio.sleep(0.01)

    asyncio.run(job())


def test_concurrent_settlements_send_one_answer(app: App, subject: str) -> None:
    seen = keep(app, subject)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        told = await answers(app, subject)
        await orders.publish(Order(1))
        await until(lambda: seen)
        msg = seen[0]
        assert sorted(await asyncio.gather(msg.ack(), msg.ack(), msg.nak(), msg.term())) == [False] * 3 + [True]
        await until_pending(js, subject, (0, 0))
        assert told == [b"+ACK"]

    run(app, job)
