"""Consumers, described call by call."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

import ackwise
from ackwise import errors
from ackwise.fluent import AsyncClient, Client, Message
from ackwise.store.clock import ManualClock
from tests.server.running import Running


def put(client: Client, *numbers: int, queue: str = "orders", partition: str | None = None) -> None:
    client.push(queue, partition, [{"data": number} for number in numbers])


def counts(client: Client, queue: str = "orders", group: str = "g") -> tuple[int, int, int]:
    (row,) = [one for one in client.connection.groups(queue) if one.group == group]
    return row.acked, row.dead, row.lag


def test_manual_ack_and_nack(client: Client) -> None:
    def handle(message: Message) -> None:
        if message.data == 2:
            client.nack(message, "even", delay=60)
        else:
            client.ack(message)

    put(client, 1, 2, 3)
    client.queue("orders").group("g").auto_ack(False).limit(3).consume(handle).run()
    assert counts(client) == (2, 0, 1)


def test_manual_is_the_default_and_what_is_not_settled_waits_for_its_lease(client: Client, clock: ManualClock) -> None:
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


def test_callbacks_settle(client: Client) -> None:
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


def test_an_exception_that_nobody_answers_is_a_nack_and_the_consumer_goes_on(client: Client) -> None:
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


def test_a_callback_that_fails_does_not_stop_the_consumer(client: Client) -> None:
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


def test_without_renewal_a_lease_runs_out_and_the_ack_says_so(client: Client, clock: ManualClock) -> None:
    told: list[str] = []

    def handle(message: Message) -> None:
        clock.advance(31)
        with pytest.raises(errors.LeaseLost) as problem:
            client.ack(message)
        told.append(str(problem.value))

    put(client, 1)
    client.queue("orders").group("g").renew_lease(False).limit(1).consume(handle).run()
    assert "invalid_lease" in told[0]


def test_a_thread_learns_at_its_end_that_its_lease_was_lost(client: Client, clock: ManualClock) -> None:
    told: list[Exception] = []

    def handle(message: Message) -> None:
        clock.advance(31)
        (keeper,) = [one for one in threading.enumerate() if one.name == "ackwise-keep-alive"]
        keeper.join(20)

    put(client, 1)
    consumer = client.queue("orders").group("g").renew_lease(True, 0.001).limit(1).consume(handle)
    consumer.on_error(lambda message, error: told.append(error)).run()
    assert [type(one) for one in told] == [errors.LeaseLost]


def test_a_lost_lease_cancels_an_async_handler(url: str, clock: ManualClock) -> None:
    cancelled: list[int] = []
    told: list[Exception] = []

    async def job() -> None:
        async with asyncio.timeout(30), AsyncClient(url, clock=clock) as client:
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
        async with asyncio.timeout(30), AsyncClient(url, clock=clock) as client:
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


def test_a_drain_ends_the_consumer(client: Client) -> None:
    began, go_on = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        began.set()
        go_on.wait(20)
        client.ack(message)

    put(client, 1, 2)
    thread = threading.Thread(target=client.queue("orders").group("g").consume(handle).run)
    thread.start()
    assert began.wait(20)
    draining = threading.Thread(target=client.drain, args=(20,))
    draining.start()
    go_on.set()
    thread.join(20)
    draining.join(20)
    assert not thread.is_alive()
    assert counts(client)[0] >= 1


WORKER = """
import sys
from ackwise.fluent import Client

with Client(sys.argv[1]) as client:
    def handle(message):
        print("began", flush=True)
        sys.stdin.readline()
        client.ack(message)
    client.queue("orders").group("g").batch(3).each().consume(handle).run()
print("drained", flush=True)
"""


def test_sigterm_drains_what_is_begun_is_finished_and_the_rest_given_back(store_url: str) -> None:
    with Running(store_url) as server, ackwise.connect(server.url) as queue:
        queue.push_many("orders", range(3))
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, server.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        with worker:
            assert worker.stdout.readline() == "began\n"
            worker.send_signal(signal.SIGTERM)
            worker.stdin.write("\n\n\n")
            worker.stdin.flush()
            out = worker.stdout.read()
            assert worker.wait(30) == 0
        assert out.splitlines()[-1] == "drained"
        (row,) = queue.groups("orders")
        assert row.leases == 0
        rest = queue.claim("orders", group="g", max=3)
        assert row.acked + len(rest) == 3
        assert {one.failures for one in rest} <= {0}
