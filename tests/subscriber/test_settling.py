"""Every delivery has one settlement: the first."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from ackwise import errors
from ackwise.subscriber import AckPolicy, App, Message, Nak, Term, TestApp
from tests.patience import PATIENCE
from tests.subscriber.conftest import Run
from tests.subscriber.explicit_handlers import attempts, explicit

LEASE = 30


def test_second_ack_succeeds_without_redelivery(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert (await seen[0].ack(), await seen[0].ack()) == (True, False)
        assert await attempts(test, seen, LEASE, LEASE) == [1]
        assert (await test.acked("q"), await test.pending("q")) == (1, 0)

    run(app, job)


def test_nak_twice_is_one_redelivery(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert (await seen[0].nak(), await seen[0].nak()) == (True, False)
        assert await test.deliver() == 1
        assert await seen[1].ack()
        assert await attempts(test, seen, LEASE) == [1, 2]

    run(app, job)


def test_ack_after_nak_and_nak_after_ack_and_anything_after_term(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        for number in range(3):
            await test.publish("q", number)
        await test.deliver()
        nakked, acked, termed = seen
        assert [await nakked.nak(5), await nakked.ack()] == [True, False]
        assert [await acked.ack(), await acked.nak(5)] == [True, False]
        assert [await termed.term("no"), await termed.ack(), await termed.nak(), await termed.term()] == [
            True,
            False,
            False,
            False,
        ]
        assert await test.advance(5) == 1
        assert (seen[3].payload, await test.acked("q")) == (0, 1)
        (letter,) = await test.dead_letters("q")
        assert (letter.reason, letter.error) == ("rejected", "no")

    run(app, job)


def test_two_tasks_that_ack_at_once_one_of_them_settles(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        answers = await asyncio.gather(*(seen[0].ack() for _ in range(8)), seen[0].nak(), seen[0].term())
        assert sorted(answers) == [False] * 9 + [True]
        assert await test.acked("q") == 1

    run(app, job)


def test_threads_that_settle_at_once_one_of_them_does(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        start = threading.Barrier(4)

        def settle(how: str) -> bool:
            start.wait(PATIENCE)
            answer: bool = getattr(seen[0], f"{how}_threadsafe")()
            return answer

        with ThreadPoolExecutor(4) as threads:
            loop = asyncio.get_running_loop()
            work = [loop.run_in_executor(threads, settle, how) for how in ("ack", "nak", "term", "ack")]
            assert sorted(await asyncio.gather(*work)) == [False, False, False, True]
        stats = await test.stats("q")
        assert stats.acked + stats.dead + stats.lag == 1

    run(app, job)


def test_threadsafe_call_in_the_loops_own_thread_says_so(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        with pytest.raises(RuntimeError, match="await the method"):
            seen[0].ack_threadsafe()
        assert await seen[0].ack()

    run(app, job)


def test_implicit_success_and_exception(app: App, run: Run) -> None:
    calls: list[int] = []

    @app.subscriber("q", retry_limit=2, backoff=(7,))
    async def odd(number: int) -> None:
        calls.append(number)
        if number % 2:
            raise ValueError(f"{number} is odd")

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.publish("q", 2)
        await test.deliver()
        assert (calls, await test.acked("q")) == ([1, 2], 1)
        assert (await test.advance(6.9), await test.advance(0.1)) == (0, 1)
        (letter,) = await test.dead_letters("q")
        assert (letter.reason, letter.error, letter.error_type) == ("retry_limit", "1 is odd", "ValueError")
        assert letter.failures == 2

    run(app, job)


def test_manual_message_stays_pending_until_deadline(app: App, run: Run) -> None:
    calls: list[int] = []

    @app.subscriber("q", ack=AckPolicy.MANUAL)
    async def look(number: int) -> None:
        calls.append(number)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        assert (await test.deliver(), await test.advance(LEASE - 1), await test.advance(1)) == (1, 0, 1)
        assert (calls, await test.pending("q")) == ([1, 1], 1)

    run(app, job)


def test_acked_first_is_never_retried_and_cannot_be_settled(
    app: App, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    @app.subscriber("q", ack=AckPolicy.FIRST)
    async def fail(number: int) -> None:
        calls.append(number)
        raise Nak(1) if number else ValueError("no")

    async def job(test: TestApp) -> None:
        await test.publish("q", 0)
        await test.publish("q", 1)
        await test.deliver()
        assert (await test.advance(LEASE), calls, await test.acked("q")) == (0, [0, 1], 2)

    run(app, job)
    assert "not_settleable" in caplog.text


def test_settling_what_was_acked_at_delivery_raises(app: App, run: Run) -> None:
    raised: list[str] = []

    async def settle(msg: Message[Any], call_next: Any) -> None:
        for settling in (msg.ack, msg.nak, msg.term):
            with pytest.raises(errors.NotSettleable, match="not_settleable") as problem:
                await settling()
            raised.append(problem.value.code)
        assert msg.deadline is None
        await call_next(msg)

    app.middleware.append(settle)

    @app.subscriber("q", ack=AckPolicy.FIRST)
    async def handle(number: int) -> None: ...

    async def job(test: TestApp) -> None:
        await test.publish("q", 0)
        await test.deliver()

    run(app, job)
    assert raised == ["not_settleable"] * 3


def test_explicit_handler_without_settlement_warns_once(app: App, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        message_id = await test.publish("q", 1)
        await test.deliver()
        warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert len(warnings) == 1
        assert message_id in warnings[0]
        assert "without settling" in warnings[0]
        assert await attempts(test, seen, LEASE - 1) == [1]
        assert await attempts(test, seen, 1) == [1, 2]

    run(app, job)


def test_raising_explicit_handler_settles_by_nak_and_term_only(app: App, run: Run) -> None:
    calls: list[int] = []

    @app.subscriber("q")
    async def handle(msg: Message[int]) -> None:
        calls.append(msg.payload)
        raise (ValueError("no"), Nak(3), Term("never"))[msg.payload]

    async def job(test: TestApp) -> None:
        for number in range(3):
            await test.publish("q", number)
        await test.deliver()
        (letter,) = await test.dead_letters("q")
        assert letter.error == "never"
        await test.advance(3)
        assert calls == [0, 1, 2, 1]
        await test.advance(LEASE - 3)
        assert calls.count(0) == 2

    run(app, job)


@pytest.mark.parametrize("how", ["ack", "nak"])
def test_settlement_before_an_exception_stands(app: App, run: Run, how: str) -> None:
    calls: list[int] = []

    @app.subscriber("q")
    async def handle(msg: Message[int]) -> None:
        calls.append(msg.attempt)
        await (msg.ack() if how == "ack" or msg.attempt > 1 else msg.nak(5))
        raise RuntimeError("afterwards")

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        await test.advance(4.9)
        assert calls == [1]
        await test.advance(LEASE)
        assert calls == ([1] if how == "ack" else [1, 2])
        assert await test.acked("q") == 1

    run(app, job)


@pytest.mark.parametrize(("delay", "due"), [(None, 7.0), (0, 0.0), (0.2, 0.2), (timedelta(seconds=90), 90.0)], ids=str)
def test_nak_waits_as_long_as_it_says(app: App, run: Run, delay: Any, due: float) -> None:
    """Without a delay it is the next step of the schedule."""
    seen: list[Message[Any]] = []
    explicit(app, seen, backoff=(7, 20), retry_limit=9)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        await seen[0].nak(delay)
        if due:
            assert await test.advance(due - 0.001) == 0
        assert await test.advance(0.001 if due else 0) == 1
        if delay is None:
            await seen[1].nak()
            assert (await test.advance(19.9), await test.advance(0.1)) == (0, 1)

    run(app, job)


def test_negative_delay_is_refused_and_settles_nothing(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        with pytest.raises(errors.BadInput, match="delay"):
            await seen[0].nak(-1)
        assert not seen[0].settled
        assert await seen[0].ack()
        with pytest.raises(errors.BadInput, match="delay"):
            Nak(-0.5)

    run(app, job)


def test_message_may_be_settled_after_its_handler_returned(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        test.clock.advance(LEASE - 1)
        assert await seen[0].ack()
        assert await attempts(test, seen, LEASE) == [1]

    run(app, job)


def test_late_settlement_is_false_and_spares_new_holder(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        await test.advance(LEASE)
        assert [await seen[0].ack(), await seen[0].ack()] == [False, False]
        assert await test.pending("q") == 1
        assert await seen[1].ack()
        assert await test.acked("q") == 1

    run(app, job)


def test_extend_holds_it_longer_and_says_when_it_cannot(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.publish("q", 2)
        await test.deliver()
        assert await seen[0].extend(100)
        assert await attempts(test, seen, LEASE) == [1, 1, 2]
        assert not await seen[1].extend(10)
        assert await seen[0].ack()
        assert not await seen[0].extend(10)

    run(app, job)


def test_message_says_what_it_is(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        message_id = await test.publish("q", 1, headers={"colour": "red"})
        await test.deliver()
        (msg,) = seen
        assert (msg.id, msg.queue, msg.payload, msg.raw, msg.attempt) == (message_id, "q", 1, b"1", 1)
        assert msg.headers == {"colour": "red"}
        assert msg.deadline is not None
        assert msg.deadline - msg.enqueued_at == timedelta(seconds=LEASE)
        assert message_id in repr(msg)

    run(app, job)


def test_same_decorator_serves_implicit_and_explicit(app: App, run: Run) -> None:
    """What the seed calls migration."""
    calls: list[str] = []

    @app.subscriber("before")
    async def before(order: int) -> None:
        calls.append(f"implicit {order}")

    @app.subscriber("after")
    async def after(msg: Message[int]) -> None:
        calls.append(f"explicit {msg.payload}")
        await msg.ack()

    async def job(test: TestApp) -> None:
        await test.publish("before", 1)
        await test.publish("after", 2)
        await test.deliver()
        assert calls == ["implicit 1", "explicit 2"]
        assert (await test.acked("before"), await test.acked("after")) == (1, 1)

    run(app, job)


def test_handler_that_is_a_function_runs_in_a_thread(app: App, run: Run) -> None:
    threads: list[bool] = []

    @app.subscriber("implicit")
    def implicit_one(number: int) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        if number:
            raise Term("in a thread")

    @app.subscriber("explicit")
    def explicit_one(msg: Message[int]) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        assert msg.extend_threadsafe(60)
        assert msg.ack_threadsafe()
        assert not msg.ack_threadsafe()

    async def job(test: TestApp) -> None:
        await test.publish("implicit", 0)
        await test.publish("implicit", 1)
        await test.publish("explicit", 0)
        await test.deliver()
        assert threads == [False] * 3
        assert (await test.acked("implicit"), await test.acked("explicit")) == (1, 1)
        assert len(await test.dead_letters("implicit")) == 1

    run(app, job)


def test_settling_from_a_thread_keeps_the_delay_and_the_reason(app: App, run: Run) -> None:
    @app.subscriber("q", backoff=(500,))
    def handle(msg: Message[int]) -> None:
        if msg.payload:
            assert msg.term_threadsafe("no such customer")
        else:
            assert msg.nak_threadsafe(7, error="later") if msg.attempt == 1 else msg.ack_threadsafe()

    async def job(test: TestApp) -> None:
        await test.publish("q", 0)
        await test.publish("q", 1)
        assert await test.deliver() == 2
        (letter,) = await test.dead_letters("q")
        assert (letter.reason, letter.error) == ("rejected", "no such customer")
        assert (await test.advance(6.9), await test.advance(0.1), await test.acked("q")) == (0, 1, 1)

    run(app, job)


def test_groups_get_every_message_and_durable_means_group(app: App, run: Run) -> None:
    calls: list[str] = []

    @app.subscriber("q", group="mail")
    async def mail(number: int) -> None:
        calls.append("mail")

    @app.subscriber("q", durable="count")
    async def count(number: int) -> None:
        calls.append("count")

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert sorted(calls) == ["count", "mail"]
        assert (await test.acked("q", "mail"), await test.acked("q", "count")) == (1, 1)

    run(app, job)
