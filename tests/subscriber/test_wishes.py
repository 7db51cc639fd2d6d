"""What users of such systems ask for in their trackers, one test for each wish that concerns consumers."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ackwise
from ackwise.clock import ManualClock
from ackwise.core.validation import MICROS
from ackwise.fluent import AsyncClient, Client, Partial
from ackwise.subscriber import App, Message, Nak, TestApp
from ackwise.subscriber.feeds.broker_feed import BrokerFeed
from tests.patience import PATIENCE
from tests.server.running import Running
from tests.subscriber.app_runs import connection, go, until_acked
from tests.subscriber.conftest import Run, until

LEASE = 30


def kept(app: App, **options: Any) -> list[Message[int]]:
    seen: list[Message[int]] = []

    @app.subscriber("q", **options)
    async def keep(msg: Message[int]) -> None:
        seen.append(msg)

    return seen


def test_wish_1_a_late_ack_is_refused_and_said_so(app: App, run: Run) -> None:
    seen = kept(app)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        await test.advance(LEASE)
        assert not await seen[0].ack()
        (answer,) = await test.connection.settle([(seen[0]._delivery.client_delivery, "ack")])  # type: ignore[attr-defined]
        assert answer.verdict == "stale"
        assert await seen[1].ack()

    run(app, job)


def test_wish_2_running_and_waiting_leases_are_extended(live: App, clock: ManualClock) -> None:
    """What was claimed ahead is covered; a handler whose lease is lost is cancelled (see `test_running`)."""
    began, go_on = asyncio.Event(), asyncio.Event()
    attempts: list[int] = []

    async def note(msg: Message[Any], call_next: Any) -> None:
        attempts.append(msg.attempt)
        await call_next(msg)

    live.middleware.append(note)

    @live.subscriber("q", prefetch=3)
    async def slow(number: int) -> None:
        began.set()
        await go_on.wait()

    async def job() -> None:
        async with live:
            await connection(live).push_many("q", range(4))
            await began.wait()
            await until_held(4)
            for _ in range(3):
                clock.advance(20)
                await until_extended(clock)
            go_on.set()
            await until_acked(live, "q", 4)
        assert attempts == [1, 1, 1, 1]

    async def until_held(count: int) -> None:
        while sum(one.held for one in await connection(live).leases()) < count:
            await asyncio.sleep(0.002)

    async def until_extended(clock: ManualClock) -> None:
        """The app has the answer: it would count a lease as lost whose old deadline is over."""
        feed = live._consumers[0]._feed
        assert isinstance(feed, BrokerFeed)
        while any(lease.remaining(clock.now()) < LEASE / 2 * MICROS for lease in feed.held.keeper._kept):
            await asyncio.sleep(0.002)

    go(job)


CRASHING = """
import os, sys
from ackwise.subscriber import App
import asyncio

app = App(sys.argv[1])

@app.subscriber("q", lease=1)
async def die(number: int):
    os._exit(9)

asyncio.run(app.run())
"""


def crash(url: str) -> None:
    done = subprocess.run([sys.executable, "-c", CRASHING, url], timeout=PATIENCE)
    assert done.returncode == 9


def test_wish_3_crashed_workers_are_recovered_by_the_system(tmp_path: Path) -> None:
    with Running(f"sqlite:///{tmp_path}/q.db") as server, ackwise.connect(server.url) as queue:
        queue.push("q", 1)
        crash(server.url)
        (again,) = queue.claim("q", wait=30)
        assert (again.json(), again.attempt) == (1, 2)
        again.ack()


def test_wish_4_message_that_kills_its_worker_is_buried(tmp_path: Path) -> None:
    with Running(f"sqlite:///{tmp_path}/q.db") as server, ackwise.connect(server.url) as queue:
        queue.create_queue("q", retry_limit=None, delivery_limit=2)
        queue.push("q", 1)
        crash(server.url)
        crash(server.url)
        assert not queue.claim("q", wait=2)
        (letter,) = queue.dead_letters("q")
        assert (letter.reason, letter.deliveries) == ("delivery_limit", 2)


def test_wish_5_long_and_delayed_work_is_not_done_twice(live: App, clock: ManualClock) -> None:
    seen: list[int] = []
    go_on = asyncio.Event()

    @live.subscriber("q")
    async def slow(msg: Message[int]) -> None:
        seen.append(msg.payload)
        await go_on.wait()
        assert await msg.ack()

    async def job() -> None:
        async with live:
            await connection(live).push("q", 1, delay=10 * LEASE)
            (stats,) = [await connection(live).stats("q")]
            assert (stats.scheduled, seen) == (1, [])
            clock.advance(10 * LEASE)
            await until(lambda: seen)
            for _ in range(4):
                (lease,) = await connection(live).leases()
                clock.advance(16)
                while (await connection(live).leases())[0].deadline == lease.deadline:
                    await asyncio.sleep(0.002)
            go_on.set()
            await until_acked(live, "q", 1)
        assert seen == [1]

    go(job)


def test_wish_6_delayed_work_does_not_fill_a_workers_memory(live: App) -> None:
    """Only what is due can be claimed, and no more than the cap."""
    began = asyncio.Event()

    @live.subscriber("q", concurrency=2, prefetch=3)
    async def slow(number: int) -> None:
        began.set()
        await asyncio.Event().wait()

    async def job() -> None:
        async with live:
            delayed = [ackwise.Item(payload=n, delay=3600) for n in range(200)]
            await connection(live).push_many("q", [*delayed, *range(50)])
            await began.wait()
            while sum(one.held for one in await connection(live).leases()) < 5:
                await asyncio.sleep(0.002)
            stats = await connection(live).stats("q")
            assert (sum(one.held for one in await connection(live).leases()), stats.scheduled) == (5, 200)
            await live.stop(grace=0)

    go(job)


def test_wish_7_nack_delay_is_chosen_per_message(app: App, run: Run) -> None:
    calls: list[int] = []

    @app.subscriber("q", backoff=(50,))
    async def handle(number: int) -> None:
        calls.append(number)
        if calls.count(number) == 1:
            raise Nak(number) if number else ValueError("on the schedule")

    async def job(test: TestApp) -> None:
        for number in (0, 10, 20):
            await test.publish("q", number)
        await test.deliver()
        assert [await test.advance(10), await test.advance(10), await test.advance(30)] == [1, 1, 1]
        assert calls == [0, 10, 20, 10, 20, 0]

    run(app, job)


def test_wish_8_a_dead_letter_says_why(app: App, run: Run) -> None:
    @app.subscriber("q", retry_limit=2)
    async def handle(number: int) -> None:
        raise KeyError("customer 7")

    async def job(test: TestApp) -> None:
        await test.publish("q", 1, headers={"source": "web"})
        await test.deliver()
        (letter,) = await test.dead_letters("q")
        assert (letter.reason, letter.error, letter.error_type) == ("retry_limit", "'customer 7'", "KeyError")
        assert (letter.failures, letter.deliveries, letter.headers) == (2, 2, {"source": "web"})
        assert [(one["event"], one["error"]) for one in letter.history] == [("retry", "'customer 7'")] * 2
        first, last = letter.history
        assert "trace" not in first
        assert 'raise KeyError("customer 7")' in str(last["trace"]).splitlines()[-1]

    run(app, job)


def test_wish_9_shutdown_and_release_spend_no_retries(live: App) -> None:
    began = asyncio.Event()

    @live.subscriber("q", retry_limit=1)
    async def slow(number: int) -> None:
        began.set()
        await asyncio.Event().wait()

    async def job() -> None:
        for _ in range(3):
            began.clear()
            await live.start()
            if not await connection(live).browse("q"):
                await connection(live).push("q", 1)
            await began.wait()
            await live.stop(grace=0)
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            (again,) = await queue.claim("q")
            assert (again.failures, again.attempt) == (0, 4)
            await again.ack()

    go(job)


def test_wish_13_batch_messages_have_own_outcomes_in_one_call(url: str, clock: ManualClock) -> None:
    with Client(url, clock=clock) as client:
        client.push("q", None, [{"data": number} for number in range(3)])
        seen: list[str] = []

        def handle(messages: list[Any]) -> None:
            named = [
                {"transaction_id": one.transaction_id, "partition_id": one.partition_id, "status": status}
                for one, status in zip(messages, ("completed", "failed", "dlq"), strict=True)
            ]
            seen.extend(answer.verdict for answer in client.ack_batch(named, atomic=False))

        client.queue("q").batch(3).limit(3).consume(handle).run()
        assert seen == ["acked", "retried", "dead"]


STATUSES: dict[int, Any] = {
    0: "completed",
    1: "failed",
    2: "dlq",
    3: "retry",
    4: ackwise.Reject("no"),
    5: KeyError("x"),
}


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
@pytest.mark.parametrize("how", ["returned", "raised"])
def test_wish_13_list_handler_returns_mapping_or_raises_partial(
    url: str, clock: ManualClock, kind: str, how: str
) -> None:
    """Each message has its outcome, all in one request; one that is settled already, or not named, is left alone."""
    seen: list[int] = []

    def chosen(messages: list[Any]) -> dict[Any, Any]:
        seen.extend(one.data for one in messages)
        outcomes = {one: STATUSES[one.data] for one in messages if one.data in STATUSES}
        if how == "raised":
            raise Partial({one: status for one, status in outcomes.items() if status != "completed"})
        return outcomes

    def in_threads() -> None:
        with Client(url, clock=clock) as client:
            client.push("q", None, [{"data": number} for number in range(7)])
            client.queue("q").batch(7).limit(7).config(retry_limit=9, retry_delay=60_000).consume(chosen).run()

    async def in_tasks() -> None:
        async with AsyncClient(url, clock=clock) as client:
            await client.push("q", None, [{"data": number} for number in range(7)])
            await client.queue("q").batch(7).limit(7).config(retry_limit=9, retry_delay=60_000).consume(chosen)

    in_threads() if kind == "threads" else asyncio.run(in_tasks())
    with ackwise.connect(url, clock=clock) as queue:
        (row,) = queue.groups("q")
        # The seventh was not named: acked if the others failed, else it waits for its lease, and closing gave it back.
        assert (row.acked, row.dead) == (1 if how == "returned" else 2, 2)
        now = {one.json(): one.failures for one in queue.claim("q", max=9)}
        assert now == ({3: 0, 6: 0} if how == "returned" else {3: 0})
        clock.advance(60)
        assert {one.json(): one.failures for one in queue.claim("q", max=9)} == {1: 1, 5: 1}
        assert {(one.json(), one.reason, one.error) for one in queue.dead_letters("q")} == {
            (2, "rejected", "rejected"),
            (4, "rejected", "no"),
        }
    assert seen == list(range(7))


def test_wish_13_a_mapping_that_makes_no_sense_is_a_failure(url: str, clock: ManualClock) -> None:
    told: list[str] = []

    with Client(url, clock=clock) as client:
        client.push("q", None, [{"data": number} for number in range(4)])
        queue = client.queue("q").config(retry_limit=1).batch(2).limit(2)
        for nonsense in ({"count": 2}, None):
            consumer = queue.consume(lambda messages, made=nonsense: made or {messages[0]: "perhaps"})
            consumer.on_error(lambda messages, error: told.append(str(error))).run()
        # The first names no message; the second is the failure of one message.
        assert "not for 'count'" in told[0]
        (letter,) = client.get_dlq("q").messages
        assert (letter.data, client.connection.groups("q")[0].acked) == (2, 0)
        assert "not 'perhaps'" in letter.error_message
        client.push("acked", None, [{"data": 1}, {"data": 2}])
        consumer = client.queue("acked").batch(2).limit(2).auto_ack(True).consume(lambda all: {all[0]: "failed"})
        consumer.on_error(lambda messages, error: told.append(error.code)).run()
        assert told[1:] == ["not_settleable"]


DRAINED = """
import asyncio, sys
from ackwise.subscriber import App

app = App(sys.argv[1])

@app.subscriber("q", concurrency=2, prefetch=4)
async def handle(number: int):
    print("began", number, flush=True)
    if number:
        await asyncio.Event().wait()
    await asyncio.to_thread(sys.stdin.readline)

asyncio.run(app.run(grace=float(sys.argv[2])))
"""


@pytest.mark.parametrize("grace", ["0.5"])
def test_wish_15_sigterm_releases_at_once_and_acks_finished(tmp_path: Path, grace: str) -> None:
    with Running(f"sqlite:///{tmp_path}/q.db") as server, ackwise.connect(server.url) as queue:
        queue.push_many("q", range(6))
        worker = subprocess.Popen(
            [sys.executable, "-c", DRAINED, server.url, grace], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        with worker:
            began = sorted([worker.stdout.readline(), worker.stdout.readline()])
            assert began == ["began 0\n", "began 1\n"]
            worker.send_signal(signal.SIGTERM)
            worker.stdin.write("\n")
            worker.stdin.flush()
            assert worker.wait(PATIENCE) == 0
        (row,) = queue.groups("q")
        rest = queue.claim("q", max=9)
        assert (row.acked, row.leases, sorted(one.json() for one in rest)) == (1, 0, [1, 2, 3, 4, 5])
        assert {one.failures for one in rest} == {0}
