"""How consumers end: drains, signals, and clients that are closed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

import ackwise
from ackwise import errors
from ackwise.client.resilience import Resilience
from ackwise.clock import ManualClock
from ackwise.fluent import AsyncClient, Client, Message
from tests.client.flaky import Flaky
from tests.patience import PATIENCE
from tests.server.running import Running


def counts(client: Client) -> tuple[int, int]:
    (row,) = client.connection.groups("orders")
    return row.acked, row.held


def left(url: str, clock: ManualClock | None = None) -> list[tuple[int, int]]:
    """What another client is handed now, with its failures."""
    with ackwise.connect(url, clock=clock) as queue:
        return [(one.json(), one.failures) for one in queue.claim("orders", group="g", max=99)]


def test_drain_finishes_current_message_and_releases_others(client: Client) -> None:
    began, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def handle(message: Message) -> None:
        seen.append(message.data)
        began.set()
        assert go_on.wait(PATIENCE)
        client.ack(message)

    client.push("orders", None, [{"data": number} for number in range(5)])
    consumer = client.queue("orders").group("g").batch(4).each().consume(handle)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    assert began.wait(PATIENCE)
    draining = threading.Thread(target=client.drain, args=(20,))
    draining.start()
    while not consumer.batch_handler.stopping:
        pass
    go_on.set()
    thread.join(PATIENCE)
    draining.join(PATIENCE)
    assert (thread.is_alive(), draining.is_alive()) == (False, False)
    assert (seen, counts(client)) == ([0], (1, 3))
    (row,) = client.connection.groups("orders")
    assert row.leases == 0


def test_grace_end_cancels_async_handler_before_release(url: str, clock: ManualClock) -> None:
    told: list[object] = []

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:
            await client.push("orders", None, [{"data": number} for number in range(3)])
            began = asyncio.Event()

            async def handle(message: Message) -> None:
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    (row,) = await client.connection.groups("orders")
                    told.append((message.data, row.leases))

            consumer = client.queue("orders").group("g").batch(3).each().consume(handle)
            running = asyncio.ensure_future(consumer.on_error(lambda message, error: told.append(type(error))).run())
            await began.wait()
            told.append(await client.drain(0.01))
            await running
            (row,) = await client.connection.groups("orders")
            assert (row.leases, row.acked, row.held) == (0, 0, 3)

    asyncio.run(job())
    assert told == [(0, 1), errors.LeaseLost, 3], "cut off while its lease was held"


def test_grace_end_stops_thread_from_beginning_more(client: Client) -> None:
    began, go_on = threading.Event(), threading.Event()
    told: list[object] = []

    def handle(message: Message) -> None:
        began.set()
        assert go_on.wait(PATIENCE)
        with pytest.raises(errors.LeaseLost, match="invalid_lease"):
            client.ack(message)
        told.append(message.data)

    client.push("orders", None, [{"data": number} for number in range(3)])
    consumer = client.queue("orders").group("g").batch(3).each().consume(handle)
    consumer.on_error(lambda message, error: told.append(type(error)))
    thread = threading.Thread(target=consumer.run)
    thread.start()
    assert began.wait(PATIENCE)
    assert client.drain(0) == 3
    go_on.set()
    thread.join(PATIENCE)
    assert told == [0, errors.LeaseLost]
    (row,) = client.connection.groups("orders")
    assert (row.acked, row.leases) == (0, 0)


def test_acks_that_wait_are_sent_before_a_client_closes(store_url: str, clock: ManualClock) -> None:
    with Running(store_url, clock) as server:
        door = Flaky(server.address)
        hold = threading.Event()
        client = Client(door.url, clock=clock).open()
        client.push("orders", None, [{"data": number} for number in range(5)])
        messages = client.queue("orders").group("g").batch(5).pop()
        door.fail("/v1/settle", hold)
        said: list[str] = []
        threads = [threading.Thread(target=lambda m=m: said.append(client.ack(m))) for m in messages[:4]]
        connection = client.connection
        for thread in threads:
            thread.start()
        waiting = connection.transport._acks._waiting  # type: ignore[attr-defined]
        while sum(map(len, list(waiting.values()))) < 3:
            pass
        closing = threading.Thread(target=client.close)
        closing.start()
        # Time for a release to overtake them, if it would.
        threading.Event().wait(0.05)
        assert door.count("/v1/settle") == 1
        hold.set()
        for thread in (*threads, closing):
            thread.join(PATIENCE)
        assert said == ["acked"] * 4
        assert left(server.url, clock) == [(4, 0)]
        door.down()


def test_closing_ends_consumers_that_still_run(url: str, clock: ManualClock) -> None:
    client = Client(url, clock=clock).open()
    client.push("orders", None, [{"data": number} for number in range(3)])
    began, go_on = threading.Event(), threading.Event()
    told: list[type[Exception]] = []

    def handle(message: Message) -> None:
        began.set()
        assert go_on.wait(PATIENCE)
        client.ack(message)

    working = client.queue("orders").group("g").batch(3).each().consume(handle)
    working.on_error(lambda message, error: told.append(type(error)))
    waiting = client.queue("empty").wait(300).consume(handle)
    threads = [threading.Thread(target=one.run) for one in (working, waiting)]
    for thread in threads:
        thread.start()
    assert began.wait(PATIENCE)
    client.close()
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert told == [errors.Draining]
    assert left(url, clock) == [(0, 0), (1, 0), (2, 0)]


def test_leaving_the_block_cancels_async_handlers_that_still_run(url: str, clock: ManualClock) -> None:
    async def job() -> None:
        async with asyncio.timeout(PATIENCE):
            async with AsyncClient(url, clock=clock) as client:
                await client.push("orders", None, [{"data": number} for number in range(3)])
                began = asyncio.Event()

                async def handle(message: Message) -> None:
                    began.set()
                    await asyncio.Event().wait()

                consumer = client.queue("orders").group("g").batch(2).each().consume(handle)
                running = asyncio.ensure_future(consumer.run())
                await began.wait()
            await running

    asyncio.run(job())
    assert left(url, clock) == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_closed_client_says_so(store_url: str, clock: ManualClock, kind: str) -> None:
    def in_threads(url: str) -> None:
        client = Client(url, clock=clock).open()
        connection = client.connection
        client.close()
        with pytest.raises(errors.Draining, match="the client is closed"):
            client.push("orders", None, {"data": 1})
        with pytest.raises(errors.Draining, match="closed"):
            connection.push("orders", 1)
        with pytest.raises(errors.Draining, match="closed"):
            connection.transport._call("/v1/push", b"{}", connection.transport._tries(repeatable=True))  # type: ignore[attr-defined]

    async def in_tasks(url: str) -> None:
        client = await AsyncClient(url, clock=clock).open()
        connection = client.connection
        await client.close()
        tries = connection.transport._tries(repeatable=True)  # type: ignore[attr-defined]
        with pytest.raises(errors.Draining, match="closed"):
            await connection.transport._call("/v1/push", b"{}", tries)  # type: ignore[attr-defined]

    with Running(store_url, clock) as server:
        in_threads(server.url) if kind == "threads" else asyncio.run(in_tasks(server.url))


def test_claim_without_an_answer_goes_back_in_a_drain(store_url: str, clock: ManualClock) -> None:
    """Its worker waits before it asks again, and has not begun to stop when the client is closed."""
    with Running(store_url, clock) as server:
        door = Flaky(server.address)
        with Client(door.url, resilience=Resilience(pauses=()), clock=clock) as client:
            client.push("orders", None, [{"data": number} for number in range(3)])
            door.fail("/v1/claim", "lose the answer")
            consumer = client.queue("orders").group("g").batch(3).each().consume(client.ack)
            waits, go_on = threading.Event(), threading.Event()

            def sleep(duration: float) -> None:
                waits.set()
                go_on.wait(20)

            client.sleep = sleep  # type: ignore[method-assign]
            thread = threading.Thread(target=consumer.run)
            thread.start()
            assert waits.wait(PATIENCE)
            assert client.drain(0) == 3
        go_on.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        with ackwise.connect(server.url) as queue:
            assert queue.leases() == []
        assert left(server.url, clock) == [(0, 0), (1, 0), (2, 0)]
        door.down()


@pytest.mark.parametrize("how", ["drained", "cancelled"])
def test_claim_without_answer_is_released_when_worker_ends(
    store_url: str, clock: ManualClock, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ackwise.fluent.aio.consumer.PAUSE_AFTER_FAILURE", 0.0 if how == "drained" else 60)

    async def job(server: Running, door: Flaky) -> None:
        resilience = Resilience(pauses=(0.01,))
        async with asyncio.timeout(PATIENCE), AsyncClient(door.url, resilience=resilience, clock=clock) as client:
            await client.push("orders", None, [{"data": number} for number in range(3)])
            door.fail("/v1/claim", "lose the answer", "lose the answer")
            consumer = client.queue("orders").group("g").batch(3).each().consume(client.ack)
            running = asyncio.ensure_future(consumer.run())
            while not door.used_up:
                await asyncio.sleep(0.001)
            if how == "drained":
                await client.drain(20)
                await running
            else:
                running.cancel()
                await asyncio.wait([running])
            async with ackwise.connect_async(server.url) as queue:
                assert await queue.leases() == []

    with Running(store_url, clock) as server:
        door = Flaky(server.address)
        asyncio.run(job(server, door))
        assert left(server.url, clock) == [(0, 0), (1, 0), (2, 0)]
        door.down()


# whole processes


@contextmanager
def process(code: str, url: str) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """A program, what it reads and what it prints."""
    worker = subprocess.Popen(
        [sys.executable, "-c", code, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            yield worker, worker.stdin, worker.stdout
        finally:
            worker.kill()


WORKER = """
import sys, time
from ackwise.fluent import Client

with Client(sys.argv[1]) as client:
    def handle(message):
        print("began", flush=True)
        while not consumer.batch_handler.stopping:
            time.sleep(0.001)
        print("stops", flush=True)
        sys.stdin.readline()
        print(client.ack(message).value, flush=True)
    consumer = client.queue("orders").group("g").batch(3).each().consume(handle)
    consumer.run()
print("drained", flush=True)
"""


def test_sigterm_drain_finishes_begun_and_releases_rest(store_url: str) -> None:
    with Running(store_url) as server, ackwise.connect(server.url) as queue:
        queue.push_many("orders", range(3))
        with process(WORKER, server.url) as (worker, stdin, stdout):
            assert stdout.readline() == "began\n"
            worker.send_signal(signal.SIGTERM)
            assert stdout.readline() == "stops\n"
            stdin.write("\n")
            stdin.flush()
            assert stdout.read().splitlines() == ["acked", "drained"]
            assert worker.wait(PATIENCE) == 0
        (row,) = queue.groups("orders")
        assert (row.acked, row.leases) == (1, 0)
        assert left(server.url) == [(1, 0), (2, 0)]


ENDLESS = """
import asyncio, sys
from ackwise.fluent import AsyncClient

async def main():
    async with AsyncClient(sys.argv[1], grace=0.1) as client:
        async def handle(message):
            print("began", flush=True)
            await asyncio.Event().wait()
        await client.queue("orders").group("g").batch(3).each().consume(handle)
asyncio.run(main())
print("drained", flush=True)
"""


IN_A_THREAD = ENDLESS.replace("async def handle", "def handle").replace("await asyncio.Event()", "threading.Event()")


@pytest.mark.parametrize("code", [ENDLESS, IN_A_THREAD.replace("asyncio, sys", "asyncio, sys, threading")])
def test_sigterm_ends_a_process_whose_handler_does_not(store_url: str, code: str) -> None:
    with Running(store_url) as server, ackwise.connect(server.url) as queue:
        queue.push_many("orders", range(3))
        with process(code, server.url) as (worker, _, stdout):
            assert stdout.readline() == "began\n"
            worker.send_signal(signal.SIGTERM)
            assert stdout.read().splitlines() == ["drained"], "it begins no other"
            assert worker.wait(PATIENCE) == 0
        assert left(server.url) == [(0, 0), (1, 0), (2, 0)]


TWO_CLIENTS = """
import asyncio, sys
from ackwise.fluent import AsyncClient

async def main():
    async with AsyncClient(sys.argv[1]) as one, AsyncClient(sys.argv[1]) as two:
        async def handle(message):
            print("handled", flush=True)
            await one.ack(message)
        await asyncio.gather(
            one.queue("first").limit(1).consume(handle).run(),
            one.queue("orders").wait(300).consume(handle).run(),
            two.queue("other").wait(300).consume(handle).run(),
        )
asyncio.run(main())
print("drained", flush=True)
"""

IN_THREADS = """
import sys, threading
from ackwise.fluent import Client

with Client(sys.argv[1]) as client:
    def work(group):
        client.queue("orders").group(group).wait(300).consume(client.ack).run()
    threads = [threading.Thread(target=work, args=(group,)) for group in ("a", "b")]
    for thread in threads:
        thread.start()
    client.queue("first").limit(1).consume(client.ack).run()
    print("handled", flush=True)
    for thread in threads:
        thread.join()
print("drained", flush=True)
"""


@pytest.mark.parametrize("code", [TWO_CLIENTS, IN_THREADS], ids=["two clients", "threads"])
def test_sigterm_drains_every_consumer_of_the_process(store_url: str, code: str) -> None:
    """Also when one of them has ended before."""
    with Running(store_url) as server, ackwise.connect(server.url) as queue:
        queue.push("first", 1)
        with process(code, server.url) as (worker, _, stdout):
            assert stdout.readline() == "handled\n"
            server.until_waiting(2)
            worker.send_signal(signal.SIGTERM)
            assert stdout.read().splitlines() == ["drained"]
            assert worker.wait(PATIENCE) == 0


IDLE = """
import sys
from ackwise.fluent import Client

with Client(sys.argv[1]) as client:
    print("up", flush=True)
    sys.stdin.readline()
"""


def test_sigterm_without_work_ends_process_as_usual(store_url: str) -> None:
    with Running(store_url) as server, process(IDLE, server.url) as (worker, _, stdout):
        assert stdout.readline() == "up\n"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == -signal.SIGTERM


INTERRUPTED = """
import sys
from ackwise.fluent import Client

with Client(sys.argv[1]) as client:
    def handle(message):
        print("began", flush=True)
        sys.stdin.readline()
        client.ack(message)
    try:
        client.queue("orders").group("g").concurrency(3).wait(300).consume(handle).run()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_interrupt_ends_idle_workers_and_busy_ones_finish(store_url: str) -> None:
    with Running(store_url) as server, ackwise.connect(server.url) as queue:
        queue.push("orders", 1)
        with process(INTERRUPTED, server.url) as (worker, stdin, stdout):
            assert stdout.readline() == "began\n"
            server.until_waiting(2)
            worker.send_signal(signal.SIGINT)
            stdin.write("\n")
            stdin.flush()
            assert stdout.readline() == "interrupted\n"
            assert worker.wait(PATIENCE) == 0
        assert queue.groups("orders")[0].acked == 1


ANSWERS = """
import signal, sys
from ackwise.fluent import Client

def now():
    return signal.getsignal(signal.SIGTERM)

def own(*_):
    pass

assert now() is signal.SIG_DFL
with Client(sys.argv[1]):
    ours = now()
    assert ours is not signal.SIG_DFL
    with Client(sys.argv[1]):
        pass
    assert now() is ours, "the other one is still open"
assert now() is signal.SIG_DFL
signal.signal(signal.SIGTERM, own)
with Client(sys.argv[1]) as client:
    client.queue("orders").idle(0).consume(print).run()
    assert now() is own
assert now() is own
print("right", flush=True)
"""


def test_open_client_handles_sigterm_unless_program_does(store_url: str) -> None:
    with process(ANSWERS, store_url) as (_, _, stdout):
        assert stdout.read() == "right\n"
