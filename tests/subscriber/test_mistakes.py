"""Mistakes of handlers: forgotten `await`, handlers that are stuck, apps without handlers."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from ackwise.clock import ManualClock
from ackwise.core.errors import BadInput
from ackwise.subscriber import App, Message, TestApp
from ackwise.subscriber.feeds.broker_feed import BrokerLink
from tests.patience import PATIENCE
from tests.subscriber.conftest import Run, until


async def dead_errors(test: TestApp, queue: str = "q") -> list[str | None]:
    return [letter.error for letter in await test.connection.dead_letters(queue)]


def test_publisher_works_in_a_plain_function(app: App, run: Run) -> None:
    """The call waits until the message is stored, and the handler need not await it."""
    results = app.publisher("results", int)

    @app.subscriber("q", retry_limit=1)
    def double(number: int) -> None:
        published = results.publish(number * 2)
        assert "Published" in repr(published)

    async def job(test: TestApp) -> None:
        await test.publish("q", 21)
        await test.deliver()
        (delivery,) = await test.connection.claim("results")
        assert (delivery.json(), await dead_errors(test)) == (42, [])

    run(app, job)


def test_publisher_is_awaited_in_an_async_function(app: App, run: Run) -> None:
    results = app.publisher("results", int)

    @app.subscriber("q", retry_limit=1)
    async def double(number: int) -> None:
        assert await results.publish(number * 2)

    async def job(test: TestApp) -> None:
        await test.publish("q", 21)
        await test.deliver()
        assert len(await test.connection.claim("results")) == 1

    run(app, job)


def test_publisher_in_a_thread_without_the_app_raises(app: App) -> None:
    results = app.publisher("results", int)
    with pytest.raises(RuntimeError, match="the app is not started"):
        results.publish(1)


@pytest.mark.parametrize("in_thread", [True, False])
def test_coroutine_without_await_fails_the_message(app: App, run: Run, in_thread: bool) -> None:
    async def send_mail() -> None:
        raise AssertionError("never runs")

    @app.subscriber("q", retry_limit=1, in_thread=in_thread)
    def bill(number: int) -> None:
        send_mail()  # type: ignore[unused-coroutine]

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        (error,) = await dead_errors(test)
        assert error is not None
        assert "send_mail was called without await" in error

    run(app, job)


def test_publish_on_the_loop_without_await_fails(app: App, run: Run) -> None:
    results = app.publisher("results", int)

    @app.subscriber("q", retry_limit=1, in_thread=False)
    def bill(number: int) -> None:
        results.publish(number)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        (error,) = await dead_errors(test)
        assert error is not None
        assert "without await" in error

    run(app, job)


def test_decorator_without_parentheses_is_refused(app: App) -> None:
    with pytest.raises(TypeError, match=r"bill: name the queue: @app.subscriber\(\"queue\"\)"):

        @app.subscriber  # type: ignore[arg-type]
        def bill(number: int) -> None: ...


def test_app_without_handlers_does_not_run(app: App) -> None:
    with pytest.raises(BadInput, match="the app 'ackwise' has no handlers; declare one"):
        asyncio.run(app.run())


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_timeout_that_is_no_duration_is_refused(app: App, timeout: float) -> None:
    with pytest.raises(BadInput, match="bill: timeout must be"):

        @app.subscriber("q", timeout=timeout)
        def bill(number: int) -> None: ...


def test_timeout_of_a_function_on_the_loop_is_refused(app: App) -> None:
    with pytest.raises(BadInput, match="bill: timeout= cannot end a plain function"):

        @app.subscriber("q", timeout=1, in_thread=False)
        def bill(number: int) -> None: ...


@pytest.mark.parametrize(
    "option",
    [
        {"on_undecodable": "foo"},
        {"auto_ack": "yes"},
        {"in_thread": "x"},
        {"ephemeral": "x"},
        {"stream": 3},
        {"backoff": 5},
    ],
)
def test_option_with_a_wrong_word_is_refused(app: App, option: dict[str, Any]) -> None:
    with pytest.raises((BadInput, TypeError), match="bill: "):

        @app.subscriber("q", **option)
        def bill(number: int) -> None: ...


@pytest.mark.parametrize("option", [{"on_undecodable": "foo"}, {"cloudevents": "foo"}, {"name": 3}])
def test_app_option_with_a_wrong_word_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(option))):
        App("sqlite:///none.db", **option)


def test_async_handler_is_cancelled_at_its_timeout(app: App, run: Run) -> None:
    cancelled = []

    @app.subscriber("q", timeout=0.01, retry_limit=1)
    async def bill(number: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert cancelled == [1]
        assert await dead_errors(test) == [f"{bill.__qualname__} took longer than 0.01 seconds"]

    run(app, job)


def test_timeout_retries_a_message_of_an_explicit_handler(app: App, run: Run) -> None:
    @app.subscriber("q", timeout=0.01, retry_limit=1)
    async def bill(message: Message[int]) -> None:
        await asyncio.Event().wait()

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert len(await dead_errors(test)) == 1

    run(app, job)


def test_own_timeout_error_of_a_handler_is_its_error(app: App, run: Run) -> None:
    @app.subscriber("q", timeout=60, retry_limit=1)
    async def bill(number: int) -> None:
        raise TimeoutError("the bank did not answer")

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert await dead_errors(test) == ["the bank did not answer"]

    run(app, job)


def test_stuck_thread_is_reported_and_replaced(live: App, caplog: pytest.LogCaptureFixture) -> None:
    """One handler at a time: the second message is handled although the first one never ends."""
    over, handled = threading.Event(), threading.Event()

    @live.subscriber("q", timeout=0.05, retry_limit=1)
    def bill(number: int) -> None:
        if number == 1:
            over.wait(PATIENCE)
        else:
            handled.set()

    async def job() -> None:
        async with live:
            link = live.link()
            assert isinstance(link, BrokerLink)
            await link.connection.push_many("q", [1, 2])
            await until(handled.is_set)
            await until(lambda: "stuck in its thread" in caplog.text)
            over.set()

    with caplog.at_level(logging.WARNING):
        asyncio.run(job())
    assert "1 such threads" in caplog.text


def test_handler_of_ten_leases_is_reported_once(
    live: App, caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    """On the real clock, with a lease of 10 milliseconds. The manual clock of the store stands still."""
    over = asyncio.Event()

    @live.subscriber("q", lease=0.01)
    async def bill(number: int) -> None:
        await over.wait()

    async def job() -> None:
        async with live:
            link = live.link()
            assert isinstance(link, BrokerLink)
            await link.connection.push("q", 1)
            await until(lambda: "set timeout= to end such a handler" in caplog.text)
            over.set()

    with caplog.at_level(logging.WARNING):
        asyncio.run(job())
    assert caplog.text.count("set timeout=") == 1
