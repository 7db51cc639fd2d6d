"""How an app comes to its end: what is begun is finished and settled, and nothing waits longer than was said."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import ackwise
from ackwise.clock import ManualClock
from ackwise.core.errors import Draining
from ackwise.subscriber import AckPolicy, App, Message
from ackwise.subscriber.feeds.broker_feed import BrokerFeed
from tests.client.flaky import Flaky
from tests.patience import PATIENCE
from tests.server.running import Running
from tests.subscriber.app_runs import connection, go
from tests.subscriber.conftest import until
from tests.subscriber.run_command import ORDERS, line_with, started


def test_message_acked_at_delivery_is_handled_before_the_end(live: App) -> None:
    """It may arrive while the app stops; then no consumer would ever get it."""
    seen: list[int] = []

    @live.subscriber("q", ack=AckPolicy.FIRST)
    async def handle(number: int) -> None:
        await asyncio.sleep(0)
        seen.append(number)

    async def job() -> None:
        for number in range(12):
            await live.start()
            async with ackwise.connect_async(live.url, clock=live.clock) as queue:
                pushing = asyncio.create_task(queue.push("q", number))
                await asyncio.sleep(0.0004 * (number % 6))
                await live.stop(grace=PATIENCE)
                await pushing
                (row,) = await queue.groups("q")
                assert row.acked == len(seen)

    go(job)


def test_message_acked_at_delivery_and_not_handled_is_logged(live: App, caplog: pytest.LogCaptureFixture) -> None:
    began = asyncio.Event()

    @live.subscriber("q", ack=AckPolicy.FIRST)
    async def handle(number: int) -> None:
        began.set()
        await asyncio.Event().wait()

    async def job() -> None:
        await live.start()
        message = (await connection(live).push("q", 1)).message_id
        await began.wait()
        await live.stop(grace=0)
        assert f"{message} was acked at delivery and is not" in caplog.text

    go(job)


def test_settlement_after_handler_return_is_awaited(live: App) -> None:
    answers: list[bool] = []
    later: list[asyncio.Task[None]] = []
    go_on = asyncio.Event()

    @live.subscriber("q")
    async def handle(msg: Message[int]) -> None:
        async def then() -> None:
            await go_on.wait()
            answers.append(await msg.ack())

        later.append(asyncio.ensure_future(then()))

    async def job() -> None:
        await live.start()
        await connection(live).push("q", 1)
        await until(lambda: later)
        stopping = asyncio.create_task(live.stop(grace=PATIENCE))
        await asyncio.sleep(0.05)
        assert not stopping.done()
        go_on.set()
        await stopping
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            (row,) = await queue.groups("q")
            assert (answers, row.acked, row.leases) == ([True], 1, 0)

    go(job)


def test_forgotten_message_is_not_awaited_at_stop(live: App) -> None:
    """A handler that forgot to settle has nothing left in its hands."""
    seen: list[int] = []

    @live.subscriber("q")
    async def forgets(msg: Message[int]) -> None:
        seen.append(msg.payload)

    async def job() -> None:
        await live.start()
        await connection(live).push("q", 1)
        await until(lambda: seen)
        async with asyncio.timeout(PATIENCE / 2):
            await live.stop(grace=10 * PATIENCE)

    go(job)


def test_stop_does_not_wait_for_messages_past_their_deadline(live: App, clock: ManualClock) -> None:
    kept: list[Message[int]] = []

    @live.subscriber("q", max_pending=1)
    async def keep(msg: Message[int]) -> None:
        kept.append(msg)

    async def job() -> None:
        await live.start()
        await connection(live).push("q", 1)
        await until(lambda: kept)
        stopping = asyncio.create_task(live.stop(grace=10 * PATIENCE))
        await asyncio.sleep(0.05)
        assert not stopping.done()
        clock.advance(31)
        await stopping
        assert not kept[0].settled

    go(job)


def test_leases_are_kept_and_settlements_sent_while_it_drains(live: App, clock: ManualClock) -> None:
    seen: list[int] = []
    go_on = [asyncio.Event(), asyncio.Event()]

    @live.subscriber("q", concurrency=2)
    async def slow(number: int) -> None:
        seen.append(number)
        await go_on[number].wait()

    async def job() -> None:
        await live.start()
        await connection(live).push_many("q", range(2))
        await until(lambda: len(seen) == 2)
        # The app's own connection: another broker would take this one for dead when the clock jumps.
        queue = connection(live)
        stopping = asyncio.create_task(live.stop(grace=PATIENCE))
        await asyncio.sleep(0)
        go_on[0].set()
        # The first is settled while the second is still at work.
        while (await queue.groups("q"))[0].acked < 1:
            await asyncio.sleep(0.005)
        for _ in range(3):
            (before,) = await queue.leases()
            clock.advance(16)
            while (await queue.leases())[0].deadline == before.deadline:
                await asyncio.sleep(0.005)
        go_on[1].set()
        await stopping
        async with ackwise.connect_async(live.url, clock=live.clock) as later:
            (row,) = await later.groups("q")
            assert (row.acked, row.leases, seen) == (2, 0, [0, 1])

    go(job)


THREADS = """
import time
from ackwise.subscriber import App

app = App("sqlite:///orders.db")

@app.subscriber("orders")
def bill(order: int):
    print("began", order, flush=True)
    time.sleep(600)
"""


def test_grace_binds_handlers_in_threads(tmp_path: Path) -> None:
    (tmp_path / "shop_orders.py").write_text(THREADS)
    url = f"sqlite:///{tmp_path}/orders.db"
    with ackwise.connect(url) as queue:
        queue.push("orders", 1)
    with started(tmp_path, "--grace", "0") as process:
        line_with(process.stdout, "began 1")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert "1 handlers still run in threads" in process.stderr.read()
    with ackwise.connect(url) as queue:
        (again,) = queue.claim("orders")
        assert (again.failures, again.attempt) == (0, 2)


def test_second_signal_ends_the_grace(tmp_path: Path) -> None:
    (tmp_path / "shop_orders.py").write_text(ORDERS)
    (tmp_path / "go").write_text("")
    url = f"sqlite:///{tmp_path}/orders.db"
    with ackwise.connect(url) as queue:
        queue.push_many("orders", range(2))
    with started(tmp_path, "--grace", "600") as process:
        line_with(process.stdout, "began 0")
        process.send_signal(signal.SIGTERM)
        with ackwise.connect(url) as queue:
            # It drains: what was not begun is back.
            while not (rest := queue.claim("orders", max=9, wait=1)):
                assert process.poll() is None
            assert rest.release() == "released"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with ackwise.connect(url) as queue:
        found = queue.claim("orders", max=9)
        assert [(one.json(), one.failures) for one in found] == [(0, 0), (1, 0)]


def test_server_that_is_gone_is_not_waited_for(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not for the fifteen seconds that a call is usually tried."""
    monkeypatch.setattr("ackwise.subscriber.consumer.FEED_END_SECONDS", 0.2)
    # The server in this process looks at what is logged as an error, and this is not its own.
    logger = logging.getLogger("ackwise.subscriber")
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    tried: list[str] = []

    async def job() -> None:
        with Running(store_url) as server:
            door = Flaky(server.address)
            app = App(door.url)
            began, go_on = asyncio.Event(), asyncio.Event()

            @app.subscriber("q")
            async def handle(number: int) -> None:
                began.set()
                await go_on.wait()

            await app.start()
            await connection(app).push("q", 1)
            await began.wait()
            door.down()
            go_on.set()
            await app.stop(grace=0.1)
            tried.append("stopped")

    go(job)
    assert tried == ["stopped"]
    assert "could not be sent" in caplog.text


def test_sigterm_while_it_still_tries_to_start(tmp_path: Path) -> None:
    (tmp_path / "shop_orders.py").write_text(
        "from ackwise.subscriber import App\n"
        "app = App('http://127.0.0.1:1', start_patience=600)\n"
        "@app.subscriber('q')\n"
        "async def handle(number: int): ...\n"
        "print('loaded', flush=True)\n"
    )
    with started(tmp_path, "--health-port", "0") as process:
        line_with(process.stdout, "loaded")
        # The handler for the signal is there when health answers; until then the signal would simply end it.
        while process.poll() is None and not _listens(process.pid):
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def _listens(pid: int) -> bool:
    """Whether a process has a socket that listens."""
    inodes = set()
    for found in Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = str(found.readlink())
        except OSError:
            continue
        if name.startswith("socket:["):
            inodes.add(name[8:-1])
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[9] in inodes and line.split()[3] == "0A" for line in lines)


class Blocked:
    """A handler that has begun, and goes on when the test says so."""

    def __init__(self, app: App) -> None:
        self.app, self.ended = app, list[int]()
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

        @app.subscriber("q")
        async def handle(number: int) -> None:
            self.began.set()
            await self.go_on.wait()
            self.ended.append(number)

    async def begin(self) -> None:
        await self.app.start()
        await connection(self.app).push("q", 1)
        await self.began.wait()

    async def left(self) -> tuple[int, int, int]:
        """Acked, waiting to be handed out, and failures of what is."""
        async with ackwise.connect_async(self.app.url, clock=self.app.clock) as queue:
            acked = (await queue.groups("q"))[0].acked
            rest = await queue.claim("q", max=9)
            return acked, len(rest), sum(one.failures for one in rest)


def others() -> set[str]:
    """What else is at work in this loop."""
    mine = asyncio.current_task()
    return {task.get_name() for task in asyncio.all_tasks() if task is not mine}


def test_second_stop_waits_for_the_first(live: App) -> None:
    """It closes nothing that the first still needs."""
    work = Blocked(live)

    async def job() -> None:
        before = others()
        await work.begin()
        stops = [asyncio.create_task(live.stop(grace=PATIENCE)) for _ in range(3)]
        await asyncio.sleep(0.02)
        assert not any(one.done() for one in stops)
        with pytest.raises(RuntimeError, match="already"):
            await live.start()
        work.go_on.set()
        await asyncio.gather(*stops)
        assert (work.ended, await work.left()) == ([1], (1, 0, 0))
        await live.stop()
        assert others() <= before

    go(job)


@pytest.mark.parametrize("graces", [(600, 0), (0, 600)])
def test_shorter_grace_of_two_stops_counts(live: App, graces: tuple[float, float]) -> None:
    work = Blocked(live)

    async def job() -> None:
        await work.begin()
        await asyncio.gather(*map(live.stop, graces))
        assert (work.ended, await work.left()) == ([], (0, 1, 0))

    go(job)


def test_stop_that_is_cancelled_gives_back_what_is_held(live: App) -> None:
    work = Blocked(live)

    async def job() -> None:
        before = others()
        await work.begin()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(live.stop(grace=600), 0.02)
        with pytest.raises(RuntimeError, match="not started"):
            live.link()
        assert (work.ended, await work.left()) == ([], (0, 1, 0))
        assert others() <= before

    go(job)


def test_stop_cancelled_twice_leaves_no_worker_running(live: App) -> None:
    """Not even a handler that will not be cancelled keeps it."""
    began, go_on = asyncio.Event(), asyncio.Event()

    @live.subscriber("q")
    async def handle(number: int) -> None:
        began.set()
        while not go_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go_on.wait()

    async def job() -> None:
        before = others()
        await live.start()
        await connection(live).push("q", 1)
        await began.wait()
        stopping = asyncio.create_task(live.stop(grace=600))
        try:
            for _ in range(2):
                await asyncio.sleep(0.02)
                assert not stopping.done()
                stopping.cancel()
            await asyncio.wait([stopping])
            assert stopping.cancelled()
            await until(lambda: len(others() - before) == 1)
        finally:
            go_on.set()
        await until(lambda: others() <= before)

    go(job)


def test_feed_whose_connection_was_closed_lets_others_go_on(app: App, store_url: str) -> None:
    """It has messages to settle and no server: it retries now and then."""
    app.url = store_url
    work = Blocked(app)

    async def job() -> None:
        await work.begin()
        await connection(app).close()
        (consumer,) = app._consumers
        consumer.stop_feed()
        work.go_on.set()
        await until(lambda: work.ended)
        for _ in range(3):
            await asyncio.sleep(0.01)
        consumer._feed_task.cancel()  # type: ignore[union-attr]
        await app.stop(grace=0)

    go(job)


@pytest.mark.parametrize("how", ["awaits", "in a task", "in a thread"])
def test_handler_that_stops_its_app_finishes_first(live: App, how: str) -> None:
    """It does not wait for itself, and what it did counts; so does what others are at."""
    ended: list[int] = []
    began = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def at_work(number: int) -> None:
        began.set()
        await asyncio.sleep(0.05)
        ended.append(number)

    async def stops(number: int) -> None:
        await began.wait()
        await (live.stop(PATIENCE) if how == "awaits" else asyncio.create_task(live.stop(PATIENCE)))
        await asyncio.sleep(0)
        ended.append(number)

    def threaded(number: int) -> None:
        asyncio.run_coroutine_threadsafe(began.wait(), loops[0]).result()
        asyncio.run_coroutine_threadsafe(live.stop(PATIENCE), loops[0]).result()
        ended.append(number)

    live.subscriber("stops")(threaded if how == "in a thread" else stops)
    live.subscriber("works")(at_work)

    async def job() -> None:
        before = others()
        loops.append(asyncio.get_running_loop())
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            running = asyncio.create_task(live.run())
            await until(lambda: live.started)
            await queue.push("works", 2)
            await queue.push("stops", 1)
            await running
            assert sorted(ended) == [1, 2]
            assert [(await queue.groups(name))[0].acked for name in ("stops", "works")] == [1, 1]
            await live.stop()
        assert others() <= before

    go(job)


def test_lifespan_stopping_its_app_does_not_wait_for_itself(live: App) -> None:
    closed: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        yield
        await app.stop()
        closed.append("lifespan")

    live._lifespan = lifespan
    work = Blocked(live)

    async def job() -> None:
        await work.begin()
        await live.stop(grace=0)
        assert (closed, await work.left()) == (["lifespan"], (0, 1, 0))

    go(job)


@pytest.mark.parametrize("when", ["at work", "while it drains"])
def test_run_that_is_cancelled_drains(live: App, when: str) -> None:
    """Such as beside something else in a task group, which fails. Cancelled again its grace is over."""
    work = Blocked(live)

    async def job() -> None:
        before = others()
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            running = asyncio.create_task(live.run(grace=600))
            await queue.create_queue("q", exist_ok=True)
            await queue.push("q", 1)
            await work.began.wait()
            running.cancel()
            await asyncio.sleep(0.02)
            assert not running.done()
            if when == "at work":
                work.go_on.set()
            else:
                running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()
        assert await work.left() == ((1, 0, 0) if when == "at work" else (0, 1, 0))
        assert others() <= before

    go(job)


def test_run_cancelled_during_start_leaves_nothing_behind(live: App) -> None:
    began, closed = asyncio.Event(), asyncio.Event()

    @contextlib.asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        began.set()
        try:
            await asyncio.sleep(0)
            yield
        finally:
            closed.set()

    live._lifespan = lifespan
    live.subscriber("q")(_nothing)

    async def job() -> None:
        before = others()
        for steps in range(12):
            began.clear()
            closed.clear()
            running = asyncio.create_task(live.run(grace=0))
            await began.wait()
            for _ in range(steps):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.wait([running])
            assert closed.is_set()
            with pytest.raises(RuntimeError, match="not started"):
                live.link()
        assert others() <= before

    go(job)


async def _nothing(number: int) -> None: ...


def test_app_started_elsewhere_is_not_run_or_stopped(live: App) -> None:
    async def job() -> None:
        async with live:
            with pytest.raises(RuntimeError, match="already"):
                await live.run()
            assert await live.ready()

    go(job)


@pytest.mark.parametrize("how", ["exits", "stops"])
def test_waiting_messages_do_not_begin_when_a_handler_stops_app(live: App, how: str) -> None:
    """Not even by a worker that never yields to another task."""
    begun: list[int] = []

    @live.subscriber("q", concurrency=2, prefetch=50, retry_limit=1)
    async def handle(number: int) -> None:
        begun.append(number)
        if len(begun) == 5:
            if how == "exits":
                raise SystemExit(3)
            await live.stop(PATIENCE)

    async def fill() -> None:
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            await queue.push_many("q", range(40))

    async def check() -> None:
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            (row,) = await queue.groups("q")
            dead = int(how == "exits")
            assert len(begun) == 5
            assert (row.acked, row.dead, row.lag, row.leases) == (5 - dead, dead, 35, 0)

    go(fill)
    with pytest.raises(SystemExit) if how == "exits" else contextlib.nullcontext():
        go(live.run)
    go(check)


@pytest.mark.parametrize("how", ["start", "run"])
def test_handler_that_stops_its_app_while_that_still_starts(
    live: App, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It has its grace, and nothing is left of the subscription that was just being opened."""
    ended: list[str] = []
    stopping, opened = asyncio.Event(), BrokerFeed.open

    async def slow(feed: BrokerFeed) -> None:
        await opened(feed)
        if feed._subscription.queue == "second":
            await stopping.wait()

    monkeypatch.setattr(BrokerFeed, "open", slow)

    @live.subscriber("first")
    async def first(number: int) -> None:
        await live.stop(PATIENCE)
        stopping.set()
        await asyncio.sleep(0.05)
        ended.append("first")

    @live.subscriber("second")
    async def second(number: int) -> None:
        ended.append("second")

    async def job() -> None:
        before = others()
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            await queue.push("first", 1)
            await queue.push("second", 1)
            if how == "run":
                await live.run(grace=PATIENCE)
            else:
                with pytest.raises(Draining, match="stopped while it started"):
                    await live.start()
            await live.stop()
            assert ended == ["first"]
            assert (await queue.groups("first"))[0].acked == 1
        assert others() <= before

    go(job)
