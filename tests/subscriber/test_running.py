"""An app as it runs: it claims by itself, keeps alive what it works on, and drains."""

from __future__ import annotations

import asyncio
import socket
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

import ackwise
from ackwise import errors
from ackwise.clock import ManualClock
from ackwise.subscriber import AckPolicy, App, Message
from tests.client.flaky import Flaky
from tests.patience import PATIENCE
from tests.server.running import Running
from tests.subscriber.app_runs import connection, go, until_acked
from tests.subscriber.conftest import until


@pytest.mark.parametrize("concurrency", [1, 16])
@pytest.mark.parametrize("explicit", [False, True])
def test_pushed_messages_are_handled_once_and_settled(live: App, concurrency: int, explicit: bool) -> None:
    seen: list[int] = []

    async def implicit(number: int) -> None:
        seen.append(number)

    async def wrapped(msg: Message[int]) -> None:
        seen.append(msg.payload)
        await msg.ack()

    live.subscriber("q", concurrency=concurrency)(wrapped if explicit else implicit)

    async def job() -> None:
        async with live:
            await connection(live).push_many("q", range(100))
            await until(lambda: len(seen) >= 100)
            await connection(live).push_many("q", range(100, 150))
            await until(lambda: len(seen) >= 150)
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            (stats,) = await queue.groups("q")
            assert (sorted(seen), stats.acked, stats.lag, stats.leases) == (list(range(150)), 150, 0, 0)
        if concurrency == 1:
            assert seen == sorted(seen)

    go(job)


def test_concurrency_and_held_messages_stay_within_limits(live: App) -> None:
    running, most, held = 0, 0, 0

    @live.subscriber("q", concurrency=3, prefetch=2)
    async def handle(number: int) -> None:
        nonlocal running, most, held
        running += 1
        most = max(most, running)
        held = max(held, sum(one.held for one in await connection(live).leases()))
        await asyncio.sleep(0)
        running -= 1

    async def job() -> None:
        async with live:
            await connection(live).push_many("q", range(40))
            await until_acked(live, "q", 40)
        assert most == 3
        assert 3 <= held <= 5

    go(job)


def test_unsettled_messages_count_until_their_deadline(live: App, clock: ManualClock) -> None:
    """What an explicit handler keeps for later does not pile up without end."""
    seen: list[int] = []

    @live.subscriber("q", max_pending=3)
    async def keep(msg: Message[int]) -> None:
        seen.append(msg.payload)

    async def job() -> None:
        async with live:
            await connection(live).push_many("q", range(10))
            await until(lambda: len(seen) == 3)
            (stats,) = await connection(live).groups("q")
            assert stats.held == 3
            clock.advance(30)
            await until(lambda: len(seen) == 6)

    go(job)


def test_lease_is_kept_while_its_handler_works(live: App, clock: ManualClock) -> None:
    seen: list[Message[int]] = []
    go_on = asyncio.Event()

    @live.subscriber("q")
    async def slow(msg: Message[int]) -> None:
        seen.append(msg)
        await go_on.wait()
        assert await msg.ack()

    async def job() -> None:
        async with live:
            await connection(live).push("q", 1)
            await until(lambda: seen)
            first = seen[0].deadline
            assert first is not None
            for _ in range(4):
                before = seen[0].deadline
                clock.advance(16)
                await until(lambda before=before: seen[0].deadline != before)  # type: ignore[misc]
            assert seen[0].deadline is not None
            assert (seen[0].deadline - first).total_seconds() == 64
            go_on.set()
            await until_acked(live, "q", 1)
        assert len(seen) == 1

    go(job)


def test_lost_lease_cancels_handler_and_next_delivery_runs(
    live: App, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled: list[int] = []
    seen: list[int] = []

    @live.subscriber("q")
    async def slow(msg: Message[int]) -> None:
        seen.append(msg.attempt)
        if msg.attempt == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(msg.attempt)
                assert not await msg.ack()
                raise
        await msg.ack()

    async def job() -> None:
        async with live:
            await connection(live).push("q", 1)
            await until(lambda: seen)
            clock.advance(31)
            await until_acked(live, "q", 1)
        assert (seen, cancelled) == ([1, 2], [1])

    go(job)
    assert "and is cancelled" in caplog.text


def test_lease_lost_at_handler_end_leaves_nothing_behind(live: App) -> None:
    seen: list[Message[Any]] = []

    @live.subscriber("q")
    async def handle(msg: Message[int]) -> None:
        seen.append(msg)
        await msg.ack()

    async def job() -> None:
        async with live:
            await connection(live).push("q", 1)
            await until_acked(live, "q", 1)
            workers = live._consumers[0]._workers
            assert workers is not None
            await until(lambda: workers.room > 0)
            workers.lost(seen[0]._delivery)
            assert (workers._lost, workers._pending) == (set(), set())

    go(job)


def test_stop_finishes_handlers_and_releases_the_rest(live: App) -> None:
    seen: list[int] = []
    began, go_on = asyncio.Event(), asyncio.Event()

    @live.subscriber("q", prefetch=5)
    async def slow(number: int) -> None:
        seen.append(number)
        began.set()
        await go_on.wait()

    async def job() -> None:
        await live.start()
        await connection(live).push_many("q", range(6))
        await began.wait()
        stopping = asyncio.create_task(live.stop(grace=PATIENCE))
        await asyncio.sleep(0)
        go_on.set()
        await stopping
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            (stats,) = await queue.groups("q")
            assert (stats.acked, stats.leases, seen) == (1, 0, [0])
            rest = await queue.claim("q", max=10)
            assert [d.json() for d in rest] == [1, 2, 3, 4, 5]
            assert {d.failures for d in rest} == {0}
            await rest.release()

    go(job)


def test_unfinished_work_after_grace_is_released_free(live: App) -> None:
    began = asyncio.Event()

    @live.subscriber("q")
    async def slow(number: int) -> None:
        began.set()
        await asyncio.Event().wait()

    async def job() -> None:
        await live.start()
        await connection(live).push("q", 1)
        await began.wait()
        await live.stop(grace=0)
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            (again,) = await queue.claim("q")
            assert (again.failures, again.attempt) == (0, 2)
            await again.ack()

    go(job)


def test_thread_that_works_is_waited_for(live: App) -> None:
    began, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    @live.subscriber("q")
    def slow(number: int) -> None:
        began.set()
        go_on.wait(PATIENCE)
        done.append(number)

    async def job() -> None:
        await live.start()
        await connection(live).push("q", 1)
        await until(began.is_set)
        stopping = asyncio.create_task(live.stop())
        await asyncio.sleep(0)
        go_on.set()
        await stopping
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            assert ((await queue.groups("q"))[0].acked, done) == (1, [1])

    go(job)


def test_acked_first_takes_only_what_it_begins_at_once(live: App) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @live.subscriber("q", ack=AckPolicy.FIRST)
    async def slow(number: int) -> None:
        began.set()
        await go_on.wait()

    async def job() -> None:
        async with live:
            await connection(live).push_many("q", range(3))
            await began.wait()
            (stats,) = await connection(live).groups("q")
            assert (stats.acked, stats.unread) == (1, 2)
            go_on.set()

    go(job)


def test_queue_deleted_under_app_is_reported_and_recreated(
    live: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []
    monkeypatch.setattr("ackwise.subscriber.feeds.broker_feed.PAUSE_AFTER_FAILURE", 0.01)

    @live.subscriber("q", retry_limit=7)
    async def handle(number: int) -> None:
        seen.append(number)

    async def job() -> None:
        async with live:
            await connection(live).push("q", 1)
            await until_acked(live, "q", 1)
            await connection(live).delete_queue("q")
            await until(lambda: "there is no queue 'q'" in caplog.text)
            await connection(live).push("q", 2)
            await until(lambda: len(seen) == 2)

    go(job)


def test_unreachable_server_is_retried_then_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    app = App(f"http://127.0.0.1:{port}", start_patience=0.4)

    async def job() -> None:
        with pytest.raises(errors.StoreUnavailable, match=rf"127.0.0.1:{port}.*tried [2-9] times in 0.4 seconds"):
            await app.start()
        with pytest.raises(RuntimeError, match="not started"):
            app.link()

    go(job)


def test_app_is_started_once(live: App) -> None:
    async def job() -> None:
        async with live:
            with pytest.raises(RuntimeError, match="already"):
                await live.start()
            assert live.started

    go(job)


def test_failing_handler_is_logged_once_per_message(live: App, caplog: pytest.LogCaptureFixture) -> None:
    """A handler's own trouble is never the app's."""
    seen: list[Any] = []

    @live.subscriber("q", retry_limit=1)
    async def broken(number: int) -> None:
        seen.append(number)
        raise ValueError("mine")

    async def job() -> None:
        async with live:
            await connection(live).push_many("q", range(5))
            await until(lambda: len(seen) == 5)
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            assert (await queue.dead_letters("q")).total == 5

    go(job)
    told = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert list(map(repr, told)) == ["ValueError('mine')"] * 5


class Broken:
    """A codec that raises what it likes."""

    content_type = "text/plain"

    def reader(self, kind: Any) -> Any:
        def read(body: bytes) -> Any:
            raise KeyError("not mine")

        return read

    def writer(self, kind: Any) -> Any:
        return bytes


def test_worker_survives_errors_of_handlers_and_codecs(live: App) -> None:
    calls: list[int] = []

    @live.subscriber("broken", codec=Broken())
    async def unread(number: int) -> None: ...

    @live.subscriber("odd", retry_limit=1)
    async def odd(number: int) -> None:
        calls.append(number)
        raise ackwise.Retry(delay=-1) if number else ackwise.Reject(7)  # type: ignore[arg-type]

    async def job() -> None:
        async with live:
            await connection(live).push_many("broken", range(3))
            await connection(live).push_many("odd", range(3))
            while (await connection(live).dead_letters()).total < 6:
                await asyncio.sleep(0.005)
            letters = await connection(live).dead_letters("odd")
            assert {letter.error_type for letter in letters} == {"BadInput"}
            assert {letter.reason for letter in await connection(live).dead_letters("broken")} == {"undecodable"}

    go(job)
    assert sorted(calls) == [0, 1, 2]


def test_app_outlives_its_servers(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One goes away, the other is used; both go away and come back, and it goes on."""
    seen: list[int] = []
    monkeypatch.setattr("ackwise.subscriber.feeds.broker_feed.PAUSE_AFTER_FAILURE", 0.01)

    async def job() -> None:
        with Running(store_url) as server, ackwise.connect(server.url) as queue:
            doors = Flaky(server.address), Flaky(server.address)
            app = App([door.url for door in doors], start_patience=5)

            @app.subscriber("q")
            async def handle(number: int) -> None:
                seen.append(number)

            async with app:
                queue.push("q", 1)
                await until(lambda: seen == [1])
                await asyncio.to_thread(server.until_waiting)  # the answer to a poll is what gets lost
                doors[0].down()
                queue.push("q", 2)
                await until(lambda: 2 in seen)
                doors[1].down()
                doors[0].up()
                queue.push("q", 3)
                await until(lambda: 3 in seen)
                while queue.groups("q")[0].acked < 3:
                    await asyncio.sleep(0.01)
            for door in doors:
                door.down()

    go(job)


def test_short_lease_is_kept_as_well(live: App) -> None:
    """In real time: shorter than the keeper's usual round."""
    live.clock = None
    seen: list[int] = []

    @live.subscriber("q", lease=0.9)
    async def slow(msg: Message[int]) -> None:
        seen.append(msg.attempt)
        deadline = msg.deadline
        assert deadline is not None
        await until(lambda: datetime.now(UTC) > deadline)
        assert await msg.ack()

    async def job() -> None:
        async with live:
            await connection(live).push("q", 1)
            await until_acked(live, "q", 1)
        assert seen == [1]

    go(job)
