"""What a JetStream consumer was seen to do, row by row, on our engine; and the example of the proposed API.

Where both do the same the numbers are the same. Where ours differs the guide says so.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from ackwise.core.settlement import Outcome
from ackwise.subscriber import App, Message, Nak, Term, TestApp
from tests.subscriber.conftest import Run
from tests.subscriber.explicit_handlers import attempts, explicit


def test_publish_with_the_same_id_is_stored_once(app: App, run: Run) -> None:
    orders = app.publisher("q", int)

    async def job(test: TestApp) -> None:
        first, again = [await orders.publish(1, dedup_id="one") for _ in range(2)]
        other = await orders.publish(1, dedup_id="two")
        assert first == again != other
        assert (await test.connection.stats("q")).messages == 2

    run(app, job)


def test_ack_frees_what_was_pending(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        before = await test.stats("q")
        await seen[0].ack()
        after = await test.stats("q")
        assert ((before.held, before.acked), (after.held, after.acked)) == ((1, 0), (0, 1))

    run(app, job)


@pytest.mark.parametrize("delay", [1.0, 3.0])
def test_nak_may_wait_longer_than_the_lease_lasts(app: App, run: Run, delay: float) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen, lease=2)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        await seen[0].nak(delay)
        assert await attempts(test, seen, delay - 0.001) == [1]
        assert await attempts(test, seen, 0.001) == [1, 2]

    run(app, job)


def test_ack_elsewhere_while_nak_waits_is_already_settled(app: App, run: Run) -> None:
    """JetStream lets it win."""
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        await seen[0].nak(5)
        delivery = seen[0]._delivery.client_delivery  # type: ignore[attr-defined]
        (answer,) = await test.connection.settle([(delivery, Outcome.ACK)])
        assert (answer.verdict, await test.acked("q")) == ("already", 0)
        assert await attempts(test, seen, 5) == [1, 2]

    run(app, job)


@pytest.mark.parametrize("reason", [None, "broken", ValueError("broken")], ids=repr)
def test_term_is_never_delivered_again_and_tells_why(app: App, run: Run, reason: Any) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert await seen[0].term(reason)
        assert await attempts(test, seen, 30, 30) == [1]
        (letter,) = await test.dead_letters("q")
        assert (letter.reason, letter.error) == ("rejected", "rejected" if reason is None else "broken")
        assert (await test.stats("q")).held == 0

    run(app, job)


def test_unsettled_message_is_redelivered_at_its_deadline(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen, lease=2)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert await attempts(test, seen, 1.999) == [1]
        assert await attempts(test, seen, 0.001) == [1, 2]
        assert seen[0] is not seen[1]
        assert (seen[0].id, seen[0].payload) == (seen[1].id, seen[1].payload)

    run(app, job)


def test_three_extensions_hold_it_past_its_deadline(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen, lease=2)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        for _ in range(3):
            test.clock.advance(1.2)
            assert await seen[0].extend()
        assert await attempts(test, seen, 0.5) == [1]
        assert await seen[0].ack()

    run(app, job)


def test_silence_ends_in_the_dead_letters(app: App, run: Run) -> None:
    """JetStream leaves it in the stream, and tells no client."""
    seen: list[Message[Any]] = []
    explicit(app, seen, lease=2, retry_limit=2)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert await attempts(test, seen, 2, 2, 2, 2) == [1, 2]
        (letter,) = await test.dead_letters("q")
        assert (letter.reason, letter.failures, await test.pending("q")) == ("retry_limit", 2, 0)

    run(app, job)


def test_nak_of_last_attempt_buries_with_its_error(app: App, run: Run) -> None:
    seen: list[Message[Any]] = []
    explicit(app, seen, retry_limit=2)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        await seen[0].nak(0, error="first")
        await test.deliver()
        await seen[1].nak(0, error=ValueError("last"))
        assert await attempts(test, seen, 0, 30) == [1, 2]
        (letter,) = await test.dead_letters("q")
        assert (letter.reason, letter.error, letter.error_type) == ("retry_limit", "last", "ValueError")

    run(app, job)


def test_last_step_of_a_schedule_repeats(app: App, run: Run) -> None:
    """And a plain nak follows it, which JetStream's does not."""
    seen: list[Message[Any]] = []
    explicit(app, seen, backoff=(0.5, 1.0), retry_limit=9)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        for wait in (0.5, 1.0, 1.0):
            await seen[-1].nak()
            count = len(seen)
            assert len(await attempts(test, seen, wait - 0.001)) == count
            assert len(await attempts(test, seen, 0.001)) == count + 1

    run(app, job)


def test_nakked_message_comes_before_later_messages(app: App, run: Run) -> None:
    order: list[tuple[int, int]] = []

    @app.subscriber("q")
    async def handle(msg: Message[int]) -> None:
        order.append((msg.payload, msg.attempt))
        await (msg.nak(0) if (msg.payload, msg.attempt) == (0, 1) else msg.ack())

    async def job(test: TestApp) -> None:
        for number in range(4):
            await test.publish("q", number)
        await test.deliver()
        assert order == [(0, 1), (0, 2), (1, 1), (2, 1), (3, 1)]

    run(app, job)


class Order(BaseModel):
    id: int
    total: float


class Bank:
    """A bank that may be down, and does not like large orders."""

    def __init__(self) -> None:
        self.down, self.charged = False, list[int]()
        self.calls: list[int] = []

    async def charge(self, order: Order) -> None:
        self.calls.append(order.id)
        if order.total > 1000:
            raise ConnectionError("the bank does not answer")
        self.charged.append(order.id)


def test_example_of_the_reference(app: App, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    bank, audited = Bank(), list[int]()

    @app.subscriber("orders", retry_limit=3, backoff=(2, 10))
    async def bill(order: Order) -> None:
        if order.total < 0:
            raise Term("negative total")
        if bank.down:
            raise Nak(delay=30)
        await bank.charge(order)

    @app.subscriber("audit")
    async def audit(msg: Message[Order]) -> None:
        audited.append(msg.attempt)
        if msg.attempt < 2:
            await msg.nak(delay=5)
        else:
            assert await msg.ack()
            assert not await msg.ack()
            raise RuntimeError("logged; the ack stands")

    orders = app.publisher("orders", Order)

    async def job(test: TestApp) -> None:
        for order in (Order(id=1, total=9.5), Order(id=2, total=-1), Order(id=3, total=5000)):
            await orders.publish(order)
        await test.publish("orders", {"id": "x"})
        await test.publish("audit", Order(id=4, total=1))
        await test.deliver()
        assert (await test.advance(2), await test.advance(10)) == (1, 2)
        letters = {(letter.reason, letter.error) for letter in await test.dead_letters("orders")}
        assert {("rejected", "negative total"), ("retry_limit", "the bank does not answer")} < letters
        assert {reason for reason, _ in letters} == {"rejected", "retry_limit", "undecodable"}
        assert (bank.charged, bank.calls) == ([1], [1, 3, 3, 3])
        await test.advance(60)
        assert (audited, await test.acked("audit"), await test.acked("orders")) == ([1, 2], 1, 1)
        bank.down = True
        await orders.publish(Order(id=5, total=1))
        await test.deliver()
        bank.down = False
        assert (await test.advance(29.9), await test.advance(0.1), bank.charged) == (0, 1, [1, 5])

    run(app, job)
    assert "logged; the ack stands" in caplog.text
