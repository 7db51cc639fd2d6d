"""Consumers, described call by call."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
import pytest

import ackwise
from ackwise import errors
from ackwise.clock import ManualClock
from ackwise.fluent import AsyncClient, Client, Message
from ackwise.fluent.options import Options
from ackwise.fluent.sync.consumer import Consumer
from tests.patience import PATIENCE


def put(client: Client, *numbers: int, queue: str = "orders", partition: str | None = None) -> None:
    client.push(queue, partition, [{"data": number} for number in numbers])


def counts(client: Client, queue: str = "orders", group: str = "g") -> tuple[int, int, int]:
    (row,) = [one for one in client.connection.groups(queue) if one.group == group]
    return row.acked, row.dead, row.lag


def until_lost(consumer: Consumer) -> None:
    """Wait until the keeper of leases has told the running handler's guard."""
    end = time.monotonic() + PATIENCE
    while not all(guard._lost for guard in consumer.batch_handler._guards):
        assert time.monotonic() < end, "the lease is not reported lost"
        time.sleep(0.002)


def test_manual_ack_and_nack(client: Client) -> None:
    def handle(message: Message) -> None:
        if message.data == 2:
            client.nack(message, "even", delay=60)
        else:
            client.ack(message)

    put(client, 1, 2, 3)
    client.queue("orders").group("g").auto_ack(False).limit(3).consume(handle).run()
    assert counts(client) == (2, 0, 1)


def test_manual_default_keeps_unsettled_message_until_expiry(client: Client, clock: ManualClock) -> None:
    seen: list[int] = []
    put(client, 1)
    consuming = client.queue("orders").group("g").limit(1)
    consuming.consume(lambda message: seen.append(message.data)).run()
    assert counts(client) == (0, 0, 1)
    clock.advance(30)
    consuming.consume(lambda message: seen.append(message.attempt)).run()
    assert seen == [1, 2]


def test_auto_ack_is_at_delivery(client: Client) -> None:
    def handle(message: Message) -> None:
        assert counts(client)[0] == 1
        raise ValueError("too late")

    put(client, 1)
    client.queue("orders").group("g").auto_ack(True).limit(1).consume(handle).run()
    assert counts(client) == (1, 0, 0)


def test_callbacks_of_a_consumer_settle_its_messages(client: Client) -> None:
    def handle(message: Message) -> None:
        if message.data % 2:
            raise ValueError(f"{message.data} is odd")

    told: list[str] = []

    def failed(message: Message, error: Exception) -> None:
        told.append(str(error))
        client.nack(message, str(error))

    put(client, 1, 2)
    client.queue("orders").config(retry_limit=1).create()
    consumer = client.queue("orders").group("g").each().batch(10).limit(2).consume(handle)
    consumer.on_success(client.ack).on_error(failed).run()
    assert (counts(client), told) == ((1, 1, 0), ["1 is odd"])
    (letter,) = client.get_dlq("orders").messages
    assert (letter.error_message, letter.data, letter.retry_count) == ("1 is odd", 1, 1)


def test_unhandled_exception_nacks_and_consumer_continues(client: Client) -> None:
    def handle(message: Message) -> None:
        if message.attempt == 1:
            raise ValueError("first")
        if message.data == 2:
            raise ackwise.Reject("never")
        client.ack(message)

    put(client, 1, 2)
    client.queue("orders").group("g").limit(4).consume(handle).run()
    assert counts(client) == (1, 1, 0)
    assert client.get_dlq("orders").messages[0].error_message == "never"


def test_callback_that_fails_does_not_stop_the_consumer(client: Client) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("in a callback")

    seen: list[int] = []
    put(client, 1, 2)
    consumer = client.queue("orders").group("g").limit(2).consume(lambda message: seen.append(message.data))
    consumer.on_success(broken).run()
    assert seen == [1, 2]


def test_batches_are_lists_unless_each(client: Client) -> None:
    shapes: list[Any] = []
    put(client, *range(5))
    queue = client.queue("orders").batch(5).limit(5)
    queue.group("a").consume(lambda messages: shapes.append([one.data for one in messages])).run()
    queue.group("b").each().consume(lambda message: shapes.append(message.data)).run()
    assert shapes == [[0, 1, 2, 3, 4], 0, 1, 2, 3, 4]


def test_partitions_and_idle(client: Client) -> None:
    seen: list[int] = []
    put(client, 1, partition="a")
    put(client, 2, partition="b")
    client.queue("orders").partition("b").idle(0.01).consume(lambda message: seen.append(message.data)).run()
    assert seen == [2]


def test_concurrency_works_side_by_side(client: Client) -> None:
    meet = threading.Barrier(3)

    def handle(message: Message) -> None:
        meet.wait(20)
        client.ack(message)

    put(client, *range(6))
    client.queue("orders").group("g").concurrency(3).limit(6).consume(handle).run()
    assert counts(client) == (6, 0, 0)


def test_two_groups_get_every_message(client: Client) -> None:
    put(client, 1, 2)
    for group in ("mail", "count"):
        client.queue("orders").group(group).limit(2).consume(client.ack).run()
        assert counts(client, group=group) == (2, 0, 0)


def test_leases_are_renewed_while_the_handler_works(client: Client, clock: ManualClock) -> None:
    def handle(message: Message) -> None:
        for _ in range(3):
            before = message.delivery.deadline
            clock.advance(20)
            end = threading.Event()
            while message.delivery.deadline == before:
                end.wait(0.002)
        client.ack(message)

    put(client, 1)
    client.queue("orders").group("g").renew_lease(True, 0.005).limit(1).consume(handle).run()
    assert counts(client) == (1, 0, 0)


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_leases_are_renewed_by_default(url: str, clock: ManualClock, kind: str) -> None:
    """Again and again, long past the time that was given first."""

    def renewed(message: Message, before: datetime) -> bool:
        later: bool = message.delivery.deadline != before
        return later

    def work(client: Client) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            for _ in range(4):
                before, end = message.delivery.deadline, time.monotonic() + 10
                clock.advance(0.06)
                while not renewed(message, before):
                    assert time.monotonic() < end, "nobody renews it"
                    time.sleep(0.002)
            assert client.ack(message) == "acked"

        return handle

    async def job() -> None:
        async with AsyncClient(url, clock=clock) as client:

            async def handle(message: Message) -> None:
                for _ in range(4):
                    before = message.delivery.deadline
                    clock.advance(0.06)
                    async with asyncio.timeout(PATIENCE):
                        while not renewed(message, before):
                            await asyncio.sleep(0.002)
                assert await client.ack(message) == "acked"

            await client.queue("orders").group("g").lease(0.1).limit(1).consume(handle)

    with Client(url, clock=clock) as client:
        put(client, 1)
        if kind == "threads":
            client.queue("orders").group("g").lease(0.1).limit(1).consume(work(client)).run()
        else:
            asyncio.run(job())
        assert counts(client) == (1, 0, 0)


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_chain_of_all_options_consumes_every_message(url: str, clock: ManualClock, kind: str) -> None:
    """Three batches side by side, message by message; one lease is renewed after two seconds."""
    seen: list[int] = []
    done: list[int] = []
    failed: list[tuple[int, str]] = []
    calls = itertools.count()

    def is_bad(message: Message) -> bool:
        assert (message.queue, message.partition, message.consumer_group) == ("orders", "customer-1", "processors")
        seen.append(message.data)
        return bool(message.data % 50 == 7)

    def in_threads() -> None:
        meet = threading.Barrier(3)

        def handle(message: Message) -> None:
            if next(calls) < 3:
                meet.wait(20)
            if message.data == 0:
                before = message.delivery.deadline
                clock.advance(16)
                while message.delivery.deadline == before:
                    time.sleep(0.01)
            if is_bad(message):
                raise ValueError("bad")

        with Client(url, clock=clock) as client:

            def on_success(message: Message) -> None:
                done.append(message.data)
                client.ack(message)

            def on_error(message: Message, error: Exception) -> None:
                failed.append((message.data, str(error)))
                client.nack(message, error, delay=60)

            (
                client.queue("orders")
                .group("processors")
                .partition("customer-1")
                .batch(100)
                .concurrency(4)
                .auto_ack(False)
                .each()
                .renew_lease(True, 2)
                .limit(250)
                .consume(handle)
                .on_success(on_success)
                .on_error(on_error)
                .run()
            )

    async def in_tasks() -> None:
        meet = asyncio.Barrier(3)

        async def handle(message: Message) -> None:
            if next(calls) < 3:
                await meet.wait()
            if message.data == 0:
                before = message.delivery.deadline
                clock.advance(16)
                while message.delivery.deadline == before:
                    await asyncio.sleep(0.01)
            if is_bad(message):
                raise ValueError("bad")

        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:

            async def on_success(message: Message) -> None:
                done.append(message.data)
                await client.ack(message)

            async def on_error(message: Message, error: Exception) -> None:
                failed.append((message.data, str(error)))
                await client.nack(message, error, delay=60)

            await (
                client.queue("orders")
                .group("processors")
                .partition("customer-1")
                .batch(100)
                .concurrency(4)
                .auto_ack(False)
                .each()
                .renew_lease(True, 2)
                .limit(250)
                .consume(handle)
                .on_success(on_success)
                .on_error(on_error)
            )

    with Client(url, clock=clock) as client:
        put(client, *range(250), partition="customer-1")
        put(client, 1000, partition="customer-2")
        in_threads() if kind == "threads" else asyncio.run(in_tasks())
        bad = [7, 57, 107, 157, 207]
        assert sorted(seen) == list(range(250))
        assert sorted(failed) == [(number, "bad") for number in bad]
        assert sorted(done) == sorted(set(range(250)) - set(bad))
        assert counts(client, group="processors") == (245, 0, 6)
        again = client.queue("orders").group("processors").partition("customer-1").batch(9).wait(0)
        assert again.pop() == []
        clock.advance(60)
        assert sorted((one.data, one.retry_count) for one in again.pop()) == [(number, 1) for number in bad]


def test_ack_without_renewal_after_expiry_raises_lease_lost(client: Client, clock: ManualClock) -> None:
    told: list[str] = []

    def handle(message: Message) -> None:
        clock.advance(31)
        with pytest.raises(errors.LeaseLost) as problem:
            client.ack(message)
        told.append(str(problem.value))

    put(client, 1)
    client.queue("orders").group("g").renew_lease(False).limit(1).consume(handle).run()
    assert "invalid_lease" in told[0]


def test_thread_learns_at_its_end_that_its_lease_was_lost(client: Client, clock: ManualClock) -> None:
    told: list[Exception] = []

    def handle(message: Message) -> None:
        clock.advance(31)
        until_lost(consumer)

    put(client, 1)
    consumer = client.queue("orders").group("g").renew_lease(True, 0.001).limit(1).consume(handle)
    consumer.on_error(lambda message, error: told.append(error)).run()
    assert [type(one) for one in told] == [errors.LeaseLost]


def test_lost_lease_cancels_an_async_handler(url: str, clock: ManualClock) -> None:
    cancelled: list[int] = []
    told: list[Exception] = []

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:
            await client.push("orders", None, {"data": 1})

            async def handle(message: Message) -> None:
                clock.advance(31)
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(message.data)
                    raise

            consumer = client.queue("orders").renew_lease(True, 0.005).limit(1).consume(handle)
            await consumer.on_error(lambda message, error: told.append(error))

    asyncio.run(job())
    assert (cancelled, [type(one) for one in told]) == ([1], [errors.LeaseLost])


def test_cancelling_an_async_consumer_gives_back_what_it_holds(url: str, clock: ManualClock) -> None:
    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:
            await client.push("orders", None, [{"data": 1}, {"data": 2}])
            began = asyncio.Event()

            async def handle(message: Message) -> None:
                began.set()
                await asyncio.Event().wait()

            task = asyncio.ensure_future(client.queue("orders").batch(2).each().consume(handle).run())
            await began.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            again = await client.queue("orders").batch(2).wait(0).pop()
            assert [(one.data, one.attempt, one.retry_count) for one in again] == [(1, 2, 0), (2, 2, 0)]

    asyncio.run(job())


def test_batch_with_lost_lease_leaves_the_rest_unhandled(client: Client, clock: ManualClock) -> None:
    seen: list[int] = []

    def handle(message: Message) -> None:
        seen.append(message.data)
        clock.advance(31)
        until_lost(consumer)

    put(client, 1, 2, 3)
    queue = client.queue("orders").group("g").batch(3).each().renew_lease(True, 0.001).limit(3)
    consumer = queue.consume(handle)
    consumer.run()
    assert (seen, counts(client)) == ([1], (0, 0, 3))


@pytest.mark.parametrize("renew", [True, False])
@pytest.mark.parametrize("how", ["raised", "caught", "by callback"])
def test_batch_rest_after_ack_of_a_lost_lease_is_unhandled(
    client: Client, clock: ManualClock, renew: bool, how: str
) -> None:
    seen: list[int] = []

    def handle(message: Message) -> None:
        seen.append(message.data)
        client.connection.release(message.lease_id)
        if how == "raised":
            client.ack(message)
        elif how == "caught":
            with suppress(errors.LeaseLost):
                client.ack(message)

    put(client, 1, 2, 3)
    consumer = client.queue("orders").group("g").batch(3).each().renew_lease(renew).limit(3).consume(handle)
    (consumer.on_success(client.ack) if how == "by callback" else consumer).run()
    assert seen == [1]
    taken = client.queue("orders").group("g").batch(3).wait(0).pop()
    assert [(one.data, one.retry_count) for one in taken] == [(1, 0), (2, 0), (3, 0)]


def test_failure_in_rewinding_queue_returns_partition_rest(client: Client) -> None:
    seen: list[tuple[int, int]] = []

    def handle(message: Message) -> None:
        seen.append((message.data, message.attempt))
        if message.data == 2 and message.attempt == 1:
            raise ValueError("once")
        client.ack(message)

    client.queue("orders").config(on_failure="rewind", exclusivity="partition").create()
    put(client, 1, 2, 3, partition="a")
    put(client, 4, 5, partition="b")
    client.queue("orders").group("g").batch(5).each().limit(7).consume(handle).run()
    assert sorted(seen) == [(1, 1), (2, 1), (2, 2), (3, 2), (4, 1), (5, 1)]
    assert counts(client) == (5, 0, 0)


def test_callback_works_under_the_lease_too(client: Client, clock: ManualClock) -> None:
    def slow(message: Message) -> None:
        for _ in range(3):
            before = message.delivery.deadline
            clock.advance(20)
            pause = threading.Event()
            while message.delivery.deadline == before:
                pause.wait(0.002)
        client.ack(message)

    put(client, 1)
    queue = client.queue("orders").group("g").renew_lease(True, 0.005).limit(1)
    queue.consume(lambda message: None).on_success(slow).run()
    assert counts(client) == (1, 0, 0)


def test_plain_function_does_not_keep_the_loop_from_renewing(url: str, clock: ManualClock) -> None:
    async def job() -> int:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:
            await client.push("orders", None, {"data": 1})

            def handle(message: Message) -> None:
                assert threading.current_thread() is not threading.main_thread()
                before = message.delivery.deadline
                clock.advance(20)
                pause = threading.Event()
                while message.delivery.deadline == before:
                    pause.wait(0.002)

            queue = client.queue("orders").group("g").renew_lease(True, 0.005).limit(1)
            await queue.consume(handle).on_success(client.ack)
            return (await client.connection.groups("orders"))[0].acked

    assert asyncio.run(job()) == 1


def test_thread_that_outlives_its_lease_holds_no_other_message(url: str, clock: ManualClock) -> None:
    go_on = threading.Event()
    seen: list[int] = []

    def handle(message: Message) -> None:
        seen.append(message.data)
        if message.data == 1:
            assert go_on.wait(PATIENCE)

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:
            await client.push("orders", None, {"data": 1})
            queue = client.queue("orders").group("g")
            consumer = queue.renew_lease(True, 0.005).limit(2).consume(handle)
            running = asyncio.ensure_future(consumer.run())
            while not seen:
                await asyncio.sleep(0.002)
            await client.connection.seek("orders", "g", to="end")
            while not any(guard.lost for guard in consumer.batch_handler._guards):
                await asyncio.sleep(0.002)
            await client.push("orders", None, {"data": 2})
            # Time for the worker to take it, if it would.
            await asyncio.sleep(0.05)
            try:
                assert [one.data for one in await queue.wait(0).pop()] == [2]
                await client.push("orders", None, {"data": 3})
            finally:
                go_on.set()
            await running

    asyncio.run(job())
    assert seen == [1, 3]


def raw(client: Client, *payloads: bytes) -> None:
    client.connection.push_many("orders", map(msgspec.Raw, payloads))


UNREADABLE = (b"1e999", b"9" * 5000)


@pytest.mark.parametrize("each", [True, False])
def test_unreadable_message_dies_and_its_neighbours_are_handled(client: Client, each: bool) -> None:
    seen: list[Any] = []

    def handle(given: Any) -> None:
        messages = [given] if isinstance(given, Message) else given
        seen.extend(one.data for one in messages)
        client.ack_batch(messages)

    raw(client, b"1", *UNREADABLE, b"2")
    queue = client.queue("orders").group("g").batch(4).limit(4)
    (queue.each() if each else queue).consume(handle).run()
    assert (seen, counts(client)) == ([1, 2], (2, 2, 0))
    letters = client.get_dlq("orders").messages
    assert {(one.reason, one.data) for one in letters} == {("undecodable", bad) for bad in UNREADABLE}
    assert all(one.error_message for one in letters)


def test_unreadable_message_is_popped_as_bytes(client: Client) -> None:
    raw(client, UNREADABLE[0])
    (message,) = client.queue("orders").wait(0).pop()
    assert (message.data, type(message.problem)) == (UNREADABLE[0], msgspec.ValidationError)
    assert client.nack(message, "cannot be read") == "retried"


def test_handler_cancelled_from_inside_fails_worker_continues(url: str, clock: ManualClock) -> None:
    async def job() -> tuple[int, int]:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:
            await client.push("orders", None, [{"data": number} for number in range(6)])

            async def handle(message: Message) -> None:
                if message.attempt == 1:
                    inner = asyncio.ensure_future(asyncio.sleep(60))
                    asyncio.get_running_loop().call_soon(inner.cancel)
                    await inner
                await client.ack(message)

            await client.queue("orders").group("g").concurrency(3).limit(12).consume(handle)
            row = (await client.connection.groups("orders"))[0]
            return row.acked, row.dead

    assert asyncio.run(job()) == (6, 0)


def test_stop_iteration_from_function_or_callback_is_failure(url: str, clock: ManualClock) -> None:
    seen: list[Any] = []

    def handle(message: Message) -> None:
        seen.append(message.retry_count)
        if message.retry_count == 0:
            next(iter(()))

    def done(message: Message) -> None:
        seen.append("done")
        next(iter(()))

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:
            await client.push("orders", None, [{"data": 1}])
            await client.queue("orders").group("g").limit(2).consume(handle).on_success(done)

    asyncio.run(job())
    assert seen == [0, 1, "done"]


def test_lasting_error_is_raised_when_others_have_finished(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    began, pause = threading.Event(), threading.Event()
    claim, turn = client.claim, itertools.count()
    done: list[int] = []

    def claims(*arguments: Any) -> Any:
        if next(turn) == 0:
            return claim(*arguments)
        assert began.wait(PATIENCE)
        raise errors.BadInput("nonsense")

    def handle(message: Message) -> None:
        began.set()
        while not consumer.batch_handler.stopping:
            pause.wait(0.005)
        client.ack(message)
        done.append(message.data)

    put(client, 1, 2)
    monkeypatch.setattr(client, "claim", claims)
    consumer = client.queue("orders").group("g").batch(2).each().concurrency(3).consume(handle)
    with pytest.raises(errors.BadInput, match="nonsense"):
        consumer.run()
    assert (done, counts(client)) == ([1], (1, 0, 1))
    assert claim(Options(queue="orders", group="g"), 1, 0)[0].failures == 0


@pytest.mark.parametrize("count", [1, 3])
def test_async_consumers_raise_it_as_it_is_too(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:

            async def claims(*_: Any) -> Any:
                raise errors.BadInput("nonsense")

            monkeypatch.setattr(client, "claim", claims)
            await client.queue("orders").concurrency(count).consume(lambda message: None)

    with pytest.raises(errors.BadInput, match="nonsense"):
        asyncio.run(job())


def test_queue_that_is_deleted_is_made_again(client: Client) -> None:
    seen: list[int] = []

    def handle(message: Message) -> None:
        client.ack(message)
        seen.append(message.data)

    put(client, 1)
    consumer = client.queue("orders").group("g").wait(20).limit(2).consume(handle)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    pause = threading.Event()
    while not seen:
        pause.wait(0.005)
    client.queue("orders").delete()
    while "orders" not in [one.name for one in client.connection.queues()]:
        pause.wait(0.02)
    put(client, 2)
    thread.join(PATIENCE)
    assert seen == [1, 2]


def test_config_before_consume_is_applied(client: Client) -> None:
    client.queue("orders").config(retry_limit=7).idle(0).consume(print).run()
    assert client.connection.queue("orders").policy["retry_limit"] == 7


def test_polls_that_do_not_wait_do_not_spin(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    polls: list[int] = []
    claim = client.claim

    def counted(*arguments: Any) -> Any:
        polls.append(1)
        return claim(*arguments)

    def sleep(duration: float) -> None:
        pauses.append(duration)
        if len(pauses) == 3:
            client.connection.stop_claims()

    monkeypatch.setattr(client, "claim", counted)
    monkeypatch.setattr(client, "sleep", sleep)
    client.queue("orders").wait(0).consume(print).run()
    assert (pauses, len(polls)) == ([0.1] * 3, 4)
