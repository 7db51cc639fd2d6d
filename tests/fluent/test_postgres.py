"""The fluent client on PostgreSQL, embedded and over HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ackwise import errors
from ackwise.fluent import AsyncClient, Client, Message, Resilience
from tests.client.flaky import Flaky
from tests.patience import PATIENCE
from tests.server.running import Running


@pytest.fixture(params=["embedded", "http"])
def url(request: pytest.FixtureRequest, pg_url: str) -> Iterator[str]:
    if request.param == "embedded":
        yield pg_url
        return
    with Running(pg_url) as server:
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as opened:
        yield opened


def put(client: Client, count: int) -> None:
    client.push("orders", None, [{"data": number} for number in range(count)])


def counts(client: Client) -> tuple[int, int, int]:
    (row,) = [one for one in client.connection.groups("orders") if one.group == "g"]
    return row.acked, row.dead, row.lag


@pytest.mark.parametrize("each", [True, False])
def test_consume_one_by_one_or_in_batches(client: Client, each: bool) -> None:
    seen: list[Any] = []

    def handle(given: Any) -> None:
        messages = [given] if each else given
        seen.append([one.data for one in messages])
        client.ack_batch(messages)

    put(client, 6)
    queue = client.queue("orders").group("g").batch(3).limit(6)
    (queue.each() if each else queue).consume(handle).run()
    assert seen == ([[n] for n in range(6)] if each else [[0, 1, 2], [3, 4, 5]])
    assert counts(client) == (6, 0, 0)


def test_consumer_on_postgres_handles_workers_and_callbacks(url: str) -> None:
    async def job() -> tuple[int, int]:
        async with asyncio.timeout(60), AsyncClient(url) as client:
            await client.queue("orders").config(retry_limit=1).create()
            await client.push("orders", None, [{"data": number} for number in range(40)])

            async def handle(message: Message) -> None:
                if message.data % 10 == 0:
                    raise ValueError(f"Odd: {message.data}")

            queue = client.queue("orders").group("g").batch(5).each().concurrency(4).limit(40)
            await queue.consume(handle).on_success(client.ack).on_error(client.nack)
            (row,) = await client.connection.groups("orders")
            return row.acked, row.dead

    assert asyncio.run(job()) == (36, 4)


def test_ack_batch_is_all_or_none(client: Client) -> None:
    put(client, 3)
    one, two, three = client.queue("orders").group("g").batch(3).pop()
    named = {"transaction_id": two.transaction_id, "partition_id": two.partition_id, "consumer_group": "g"}
    with pytest.raises(errors.RolledBack, match="not_found"):
        client.ack_batch([one, {**named, "transaction_id": "nobody"}])
    assert counts(client) == (0, 0, 3)
    answers = client.ack_batch([one, named, {**named, "transaction_id": three.transaction_id, "status": "failed"}])
    assert [answer.verdict for answer in answers] == ["acked", "acked", "retried"]


def test_transaction_forwards_once(client: Client) -> None:
    put(client, 2)
    first, second = client.queue("orders").group("g").batch(2).pop()
    steps = client.transaction().ack(first).queue("next").partition("w").push([{"data": "done"}])
    steps.commit()
    with pytest.raises(errors.BadInput, match="is committed already"):
        steps.commit()
    client.nack(second, "no")
    for settled in (first, second):
        with pytest.raises(errors.RolledBack, match="already"):
            client.transaction().ack(settled).queue("next").push([{"data": "again"}]).commit()
    assert client.connection.stats("next").messages == 1


def test_transaction_whose_answer_got_lost_is_repeated(pg_url: str) -> None:
    with Running(pg_url) as server:
        door = Flaky(server.address)
        with Client(door.url, resilience=Resilience(pauses=(0.001,))) as client:
            put(client, 1)
            (message,) = client.queue("orders").group("g").pop()
            door.fail("/v1/transaction", "lose the answer")
            done = client.transaction().ack(message).queue("next").push([{"data": 1}]).commit()
            assert (done.settled[0].verdict, done.pushed[0][0].status) == ("already", "queued")
            assert client.connection.stats("next").messages == 1
        door.down()


def test_ack_of_what_ended_otherwise_is_refused(client: Client) -> None:
    client.queue("orders").config(retry_limit=1).create()
    put(client, 2)
    dead, back = client.queue("orders").group("g").batch(2).pop()
    assert client.nack(dead, "Timeout: slow") == "dead"
    client.connection.release(back.lease_id)
    for message in (dead, back):
        with pytest.raises(errors.LeaseLost, match="is not acked"):
            client.ack(message)
    letter = client.get_dlq("orders", limit=10).messages[0]
    assert (letter.error_message, letter.data, client.get_dlq("orders").total) == ("Timeout: slow", 0, 1)


def test_lease_is_renewed_while_the_handler_works(client: Client) -> None:
    def handle(message: Message) -> None:
        for _ in range(2):
            before = message.delivery.deadline
            pause = threading.Event()
            while message.delivery.deadline == before:
                pause.wait(0.005)
        client.ack(message)

    put(client, 1)
    client.queue("orders").group("g").lease(60).renew_lease(True, 0.01).limit(1).consume(handle).run()
    assert counts(client) == (1, 0, 0)


def test_drain_gives_back_what_is_not_begun(client: Client) -> None:
    began, go_on = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        began.set()
        assert go_on.wait(PATIENCE)
        client.ack(message)

    put(client, 4)
    consumer = client.queue("orders").group("g").batch(3).each().consume(handle)
    thread, draining = threading.Thread(target=consumer.run), threading.Thread(target=client.drain, args=(20,))
    thread.start()
    assert began.wait(PATIENCE)
    draining.start()
    while not consumer.batch_handler.stopping:
        pass
    go_on.set()
    thread.join(PATIENCE)
    draining.join(PATIENCE)
    (row,) = client.connection.groups("orders")
    assert (row.acked, row.leases, row.lag) == (1, 0, 3)


def test_polls_are_called_back_wherever_they_wait(pg_url: str) -> None:
    """Two servers of one store: the client has gone over to the second, and a poll still waits at the first."""
    with Running(pg_url) as first, Running(pg_url) as second, Client([first.url, second.url]) as client:
        client.queue("orders").create()
        thread = threading.Thread(target=client.queue("orders").group("g").wait(300).consume(print).run)
        thread.start()
        first.until_waiting(1)
        client.connection.transport._adapter._first = 1  # type: ignore[attr-defined]
        assert client.drain(0) == 0
        thread.join(PATIENCE)
        assert not thread.is_alive()
