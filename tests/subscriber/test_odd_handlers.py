"""Whatever a handler does, its worker goes on, and what became of the message is never a success by mistake."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import pytest

import ackwise
from ackwise.clock import ManualClock
from ackwise.subscriber import App, Depends, Message, Nak, Term, TestApp
from tests.patience import PATIENCE
from tests.subscriber.app_runs import connection, go, until_acked
from tests.subscriber.conftest import Run, until


def test_foreign_cancellation_fails_message_not_worker(live: App) -> None:
    """Awaiting a cancelled task raises the same error as being cancelled."""
    seen: list[int] = []

    @live.subscriber("q", retry_limit=1)
    async def handle(number: int) -> None:
        seen.append(number)
        if number != 2:
            task = asyncio.ensure_future(asyncio.sleep(60))
            task.cancel()
            await task

    async def job() -> None:
        async with live:
            await connection(live).push_many("q", range(3))
            await until_acked(live, "q", 1)
            assert live.live
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            letters = await queue.dead_letters("q")
            assert (seen, {(one.error_type, one.reason) for one in letters}) == (
                [0, 1, 2],
                {("Interrupted", "retry_limit")},
            )

    go(job)


def test_app_whose_worker_has_ended_is_not_live(live: App) -> None:
    @live.subscriber("q", concurrency=2)
    async def handle(number: int) -> None: ...

    async def job() -> None:
        async with live:
            workers = live._consumers[0]._workers
            assert workers is not None
            assert live.live
            workers._tasks[0].cancel()
            await until(lambda: not live.live)

    go(job)


def test_handler_that_keeps_its_cancellation_to_itself(live: App, clock: ManualClock) -> None:
    """When the lease is lost it is cancelled; that it goes on all the same does not harm the next message."""
    seen: list[tuple[int, int]] = []

    @live.subscriber("q")
    async def handle(msg: Message[int]) -> None:
        seen.append((msg.payload, msg.attempt))
        if msg.attempt == 1 and msg.payload == 1:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        await msg.ack()

    async def job() -> None:
        async with live:
            await connection(live).push("q", 1)
            await until(lambda: seen)
            clock.advance(31)
            await until_acked(live, "q", 1)
            (worker,) = live._consumers[0]._workers._tasks  # type: ignore[union-attr]
            assert worker.cancelling() == 0
            await connection(live).push("q", 2)
            await until_acked(live, "q", 2)
            assert live.live
        assert seen == [(1, 1), (1, 2), (2, 1)]

    go(job)


def test_task_group_that_fails_leaves_its_worker_as_it_was(live: App) -> None:
    """Before Python 3.13 it leaves the task marked as cancelled."""
    seen: list[int] = []

    async def fail() -> None:
        raise ValueError("in a group")

    @live.subscriber("q", retry_limit=1)
    async def handle(number: int) -> None:
        seen.append(number)
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0) if number == 3 else fail())

    async def job() -> None:
        async with live:
            await connection(live).push_many("q", range(4))
            await until_acked(live, "q", 1)
            assert (seen, live.live) == ([0, 1, 2, 3], True)

    go(job)


def test_cancellation_after_failed_task_group_is_failure(live: App) -> None:
    """The task is marked as cancelled then, without a caller's intent."""
    seen: list[int] = []

    async def fail() -> None:
        raise ValueError("in a group")

    @live.subscriber("q", retry_limit=1, concurrency=2)
    async def handle(number: int) -> None:
        seen.append(number)
        if number < 3:
            with contextlib.suppress(ExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(fail())
            task = asyncio.ensure_future(asyncio.sleep(60))
            task.cancel()
            await task

    async def job() -> None:
        async with live:
            await connection(live).push_many("q", range(5))
            await until_acked(live, "q", 2)
            assert live.live
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            letters = await queue.dead_letters("q")
            assert (sorted(seen), [one.error_type for one in letters]) == ([0, 1, 2, 3, 4], ["Interrupted"] * 3)

    go(job)


def test_cancellation_in_a_test_app_is_a_failure(app: App, run: Run) -> None:
    async def fail() -> None:
        raise ValueError("in a group")

    @app.subscriber("q", retry_limit=1)
    async def handle(number: int) -> None:
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        (letter,) = await test.dead_letters("q")
        assert letter.error_type == "Interrupted"

    run(app, job)


@pytest.mark.parametrize("keeps", [False, True])
def test_cancelled_worker_does_not_wait_for_next_message(live: App, keeps: bool) -> None:
    """Such as a loop that is closed under an app; also when handlers keep their cancellation to themselves."""
    began = asyncio.Event()

    @live.subscriber("q")
    async def handle(number: int) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not keeps:
                raise

    async def job() -> None:
        async with live:
            await connection(live).push("q", 1)
            await began.wait()
            (worker,) = live._consumers[0]._workers._tasks  # type: ignore[union-attr]
            worker.cancel()
            await asyncio.wait([worker])
            assert live.live, "another goes on"

    go(job)


def test_waiting_workers_end_when_the_feed_ends(live: App) -> None:
    @live.subscriber("q", concurrency=2)
    async def handle(number: int) -> None: ...

    async def job() -> None:
        async with live:
            (consumer,) = live._consumers
            assert consumer._feed_task is not None
            consumer._feed_task.cancel()
            await asyncio.wait(consumer._workers._tasks)  # type: ignore[union-attr]
            assert not live.live

    go(job)


def test_uncancellable_handler_does_not_block_stop(
    live: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ackwise.subscriber.workers.CANCEL_SECONDS", 0.05)
    began, go_on = asyncio.Event(), asyncio.Event()

    @live.subscriber("q")
    async def handle(number: int) -> None:
        began.set()
        while not go_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go_on.wait()

    async def job() -> None:
        await live.start()
        await connection(live).push("q", 1)
        await began.wait()
        await live.stop(grace=0)
        go_on.set()
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            (again,) = await queue.claim("q")
            assert (again.failures, again.attempt) == (0, 2)
            await again.ack()

    go(job)
    assert "still runs" in caplog.text


@pytest.mark.parametrize("concurrency", [1, 2])
def test_thread_outliving_its_lease_blocks_no_other_message(
    live: App, clock: ManualClock, concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A thread cannot be stopped: the app releases what it claimed ahead, and claims nothing until a thread ends."""
    seen: list[int] = []
    go_on = threading.Event()

    @live.subscriber("q", concurrency=concurrency, prefetch=3)
    def handle(number: int) -> None:
        seen.append(number)
        if number < concurrency:
            go_on.wait(PATIENCE)

    async def held() -> int:
        return sum(one.held for one in await connection(live).leases())

    async def job() -> None:
        async with live:
            try:
                await connection(live).push_many("q", range(concurrency))
                await until(lambda: len(seen) == concurrency)
                theirs = await connection(live).leases()
                await connection(live).push_many("q", range(concurrency, concurrency + 2))
                while await held() < concurrency + 2:
                    await asyncio.sleep(0.002)
                for lease in theirs:
                    await connection(live).release(lease.lease_id)
                clock.advance(16)
                while await held():
                    await asyncio.sleep(0.002)
                await connection(live).push("q", 99)
                # Time for a worker to take something, if it would.
                await asyncio.sleep(0.05)
                others = await connection(live).claim("q", max=99)
                assert sorted(one.json() for one in others) == [*range(concurrency + 2), 99]
                assert live.live
                await others.ack()
            finally:
                go_on.set()
            await connection(live).push("q", 100)
            await until_acked(live, "q", concurrency + 4)
        assert sorted(seen) == [*range(concurrency), 100]

    go(job)
    assert "and still runs in its thread without effect" in caplog.text
    assert "is cancelled" not in caplog.text


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """An ordinary `def` around whatever it gets."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return wrapper


def test_handler_behind_an_ordinary_decorator_runs(live: App) -> None:
    seen: list[int] = []

    @live.subscriber("q", retry_limit=1)
    @decorated
    async def handle(number: int) -> None:
        await asyncio.sleep(0)
        seen.append(number)
        if not number:
            raise ValueError("it ran")

    async def job() -> None:
        async with live:
            await connection(live).push_many("q", range(2))
            await until_acked(live, "q", 1)
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            (letter,) = await queue.dead_letters("q")
            assert (seen, letter.error) == ([0, 1], "it ran")

    go(job)


def in_a_loop_of_its_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that makes an `async def` an ordinary function."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        return asyncio.run(function(*arguments, **named))

    return wrapper


def test_handler_made_synchronous_by_decorator_runs_in_thread(live: App) -> None:
    threads: list[int] = []

    @live.subscriber("q", retry_limit=1)
    @in_a_loop_of_its_own
    async def handle(number: int) -> None:
        threads.append(threading.get_ident())

    async def job() -> None:
        async with live:
            await connection(live).push("q", 1)
            await until_acked(live, "q", 1)
        assert len(threads) == 1
        assert threads[0] != threading.get_ident()

    go(job)


def on_the_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that makes a task of an `async def`, which only the event loop's own thread can."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        return asyncio.ensure_future(function(*arguments, **named))

    return wrapper


def test_handler_whose_decorator_needs_the_loop_says_so(live: App, caplog: pytest.LogCaptureFixture) -> None:
    threads: list[int] = []

    @live.subscriber("q", retry_limit=1, in_thread=False)
    @on_the_loop
    async def handle(number: int) -> None:
        threads.append(threading.get_ident())

    async def job() -> None:
        async with live:
            await connection(live).push("q", 1)
            await until_acked(live, "q", 1)
        assert threads == [threading.get_ident()]

    go(job)
    assert "in_thread" not in caplog.text


@pytest.mark.parametrize("decorator", [on_the_loop, in_a_loop_of_its_own])
@pytest.mark.parametrize("said", [True, None])
def test_wrapped_async_handler_without_in_thread_warns(
    app: App, decorator: Callable[..., Any], said: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(number: int) -> None: ...

    app.subscriber("q", in_thread=said)(decorator(handle))
    assert ("handle is an async def behind a decorator" in caplog.text) == (said is None)
    assert app.subscriptions[0].signature.in_thread


def test_in_thread_is_refused_for_async_and_optional_for_def(app: App, run: Run) -> None:
    threads: list[int] = []

    async def handle(number: int) -> None: ...

    with pytest.raises(TypeError, match="handle is an async def"):
        app.subscriber("q", in_thread=True)(handle)

    @app.subscriber("q", in_thread=False)
    def quick(number: int) -> None:
        threads.append(threading.get_ident())

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        assert (await test.deliver(), await test.acked("q")) == (1, 1)

    run(app, job)
    assert threads == [threading.get_ident()]


def test_awaitable_result_of_a_plain_function_is_awaited(app: App, run: Run) -> None:
    seen: list[int] = []

    async def later(number: int) -> None:
        seen.append(number)

    @app.subscriber("q")
    def handle(number: int) -> Any:
        return later(number)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert (seen, await test.acked("q")) == ([1], 1)

    run(app, job)


def test_stop_iteration_in_a_thread_is_a_failure_like_any_other(live: App) -> None:
    """On Python 3.11 no future can carry it."""

    @live.subscriber("q", retry_limit=1)
    def handle(number: int) -> None:
        next(iter([0] * number))

    async def job() -> None:
        async with live:
            await connection(live).push_many("q", range(2))
            await until_acked(live, "q", 1)
        async with ackwise.connect_async(live.url, clock=live.clock) as queue:
            (letter,) = await queue.dead_letters("q")
            assert (letter.error_type, letter.error) == ("RuntimeError", "the handler raised StopIteration")

    go(job)


class Panic(BaseException):
    """Such as what extensions in Rust raise."""


class Panicking:
    """A codec that does so for what is no number."""

    content_type = "text/plain"

    def reader(self, kind: Any) -> Any:
        def read(body: bytes) -> Any:
            if not body.isdigit():
                raise Panic("unreadable")
            return int(body)

        return read

    def writer(self, kind: Any) -> Any:
        return bytes


@pytest.mark.parametrize("where", ["in a task", "in a group", "in a thread"])
def test_any_exception_of_handler_or_codec_is_a_failure(live: App, where: str) -> None:
    async def fail() -> None:
        raise Panic("boom")

    async def on_the_loop(number: int) -> None:
        if number == 0 and where == "in a task":
            raise Panic("boom")
        if number == 0:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())

    def threaded(number: int) -> None:
        if number == 0:
            raise Panic("boom")

    live.subscriber("q", retry_limit=1, codec=Panicking())(threaded if where == "in a thread" else on_the_loop)

    async def job() -> None:
        async with live:
            for payload in ("x", 0, 1):
                await connection(live).push("q", payload)
            await until_acked(live, "q", 1)
            letters = await connection(live).dead_letters("q")
            kind = "BaseExceptionGroup" if where == "in a group" else "Panic"
            assert {one.reason: one.error_type for one in letters} == {
                "retry_limit": kind,
                "undecodable": "Undecodable",
            }
            assert live.live

    go(job)


def test_panicking_explicit_handler_leaves_message_to_expire(live: App, clock: ManualClock) -> None:
    seen: list[int] = []

    @live.subscriber("q")
    async def handle(msg: Message[int]) -> None:
        seen.append(msg.attempt)
        if msg.attempt == 1:
            raise Panic("boom")
        await msg.ack()

    async def job() -> None:
        async with live:
            await connection(live).push("q", 1)
            await until(lambda: seen)
            clock.advance(16)
            # Time for a wrong extension.
            await asyncio.sleep(0.05)
            clock.advance(16)
            await until_acked(live, "q", 1)
            assert (seen, live.live) == ([1, 2], True)

    go(job)


@pytest.mark.parametrize("problem", [SystemExit(2), KeyboardInterrupt()])
def test_exit_in_a_plain_handler_ends_no_thread(live: App, problem: BaseException) -> None:
    """As `argparse` does with arguments that it does not know."""

    @live.subscriber("q", retry_limit=1)
    def handle(number: int) -> None:
        if not number:
            raise problem

    async def job() -> None:
        async with live:
            await connection(live).push_many("q", range(2))
            await until_acked(live, "q", 1)
            (letter,) = await connection(live).dead_letters("q")
            told = "SystemExit: 2" if isinstance(problem, SystemExit) else "KeyboardInterrupt"
            assert (letter.error_type, letter.error) == ("RuntimeError", f"the handler raised {told}")

    go(job)


@pytest.mark.parametrize("problem", [SystemExit(2), KeyboardInterrupt()])
@pytest.mark.parametrize("how", ["run", "within"])
def test_handler_that_exits_program_lets_others_finish(live: App, problem: BaseException, how: str) -> None:
    """A message that ends the program each time must be buried. An interrupt charges no message."""
    ended: list[int] = []
    began = asyncio.Event()

    @live.subscriber("q", retry_limit=1, concurrency=2)
    async def handle(number: int) -> None:
        if not number:
            await began.wait()
            raise problem
        began.set()
        await asyncio.sleep(0.05)
        ended.append(number)

    async def job() -> None:
        if how == "run":
            await live.run(grace=PATIENCE)
        else:
            async with live:
                await asyncio.Event().wait()

    with ackwise.connect(live.url, clock=live.clock) as queue:
        queue.create_queue("q")
        queue.push_many("q", range(2))
        with pytest.raises(type(problem)) as caught:
            go(job)
        assert caught.value is problem
        (row,) = queue.groups("q")
        exits = isinstance(problem, SystemExit)
        assert (ended, row.acked, row.dead, row.leases) == ([1], 1, int(exits), 0)
        assert [one.failures for one in queue.claim("q", max=9)] == ([] if exits else [0])


def test_middleware_is_called_by_position(app: App, run: Run) -> None:
    seen: list[int] = []

    async def around(message: Message[Any], what_comes_next: Any) -> None:
        seen.append(message.payload)
        await what_comes_next(message)

    app.middleware.append(around)

    @app.subscriber("q")
    async def handle(number: int) -> None:
        seen.append(number)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert (seen, await test.acked("q")) == ([1, 1], 1)

    run(app, job)


async def swallowing() -> AsyncIterator[str]:
    with contextlib.suppress(Exception):
        yield "a session"


async def broken(session: Annotated[str, Depends(swallowing)]) -> str:
    raise ValueError("no connection")


def test_dependency_swallowing_failure_makes_no_success(app: App, run: Run) -> None:
    @app.subscriber("handler", retry_limit=1)
    async def handle(number: int, session: Annotated[str, Depends(swallowing)]) -> None:
        raise ValueError("failed") if number else Term("never")

    @app.subscriber("dependency", retry_limit=1)
    async def unmade(number: int, at: Annotated[str, Depends(broken)]) -> None: ...

    async def job(test: TestApp) -> None:
        for number in range(2):
            await test.publish("handler", number)
        await test.publish("dependency", 1)
        await test.deliver()
        letters = await test.dead_letters()
        assert sorted((one.reason, one.error) for one in letters) == [
            ("rejected", "never"),
            ("retry_limit", "failed"),
            ("retry_limit", "no connection"),
        ]

    run(app, job)


@pytest.mark.parametrize("explicit", [False, True])
def test_nak_and_term_out_of_a_task_group(app: App, run: Run, explicit: bool) -> None:
    async def fail(problem: Exception) -> None:
        raise problem

    async def work(number: int) -> None:
        async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
            outer.create_task(asyncio.sleep(60))
            inner.create_task(fail((Term("never"), Nak(5), ValueError("odd"))[number]))

    async def wrapped(msg: Message[int]) -> None:
        await (msg.ack() if msg.attempt > 1 else work(msg.payload))

    async def implicit(number: int) -> None:
        await work(number)

    app.subscriber("q", retry_limit=2, backoff=(9,))(wrapped if explicit else implicit)

    async def job(test: TestApp) -> None:
        for number in range(3):
            await test.publish("q", number)
        await test.deliver()
        (letter,) = await test.dead_letters("q")
        assert (letter.reason, letter.error) == ("rejected", "never")
        assert (await test.advance(4.9), await test.advance(0.1)) == (0, 1)
        assert await test.advance(30) + await test.advance(9) == 1

    run(app, job)
