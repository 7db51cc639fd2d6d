"""What a handler of lists chose comes about as it was chosen, or it is said that it did not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ackwise import Reject, Retry
from ackwise.client.resilience import Resilience
from ackwise.clock import ManualClock
from ackwise.fluent import AsyncClient, Client, Message, Partial
from ackwise.fluent.aio import batch_handler
from tests.client.flaky import Fault, Flaky, refusal
from tests.patience import PATIENCE
from tests.server.running import Running

Handler = Callable[[Any], Any]
ONCE = Resilience(pauses=())
AWAY = refusal(503, "store_unavailable")


@pytest.fixture
def door(store_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flaky]:
    for kind in ("aio", "sync"):
        monkeypatch.setattr(f"ackwise.fluent.{kind}.batch_handler.PAUSE_AFTER_FAILURE", 0.001)
    with Running(store_url, clock) as server:
        proxy = Flaky(server.address)
        yield proxy
        proxy.down()
        assert proxy.used_up, "a test whose faults never happen shows nothing"


def consume(url: str, clock: ManualClock, kind: str, handler: Handler, *, renew: bool = True, count: int = 3) -> Any:
    """Messages in one list, each with one allowed failure; the reported errors, and the group."""
    told: list[str] = []

    def done(given: Any) -> None:
        told.append("done")

    def failed(given: Any, error: Exception) -> None:
        told.append(type(error).__name__)

    def chain(client: Any) -> Any:
        queue = client.queue("q").group("g").config(retry_limit=1).batch(count).limit(count).renew_lease(renew)
        consumer = queue.consume(handler).on_success(done)
        return consumer.on_error(failed) if kind.endswith("told") else consumer

    items = [{"data": number} for number in range(count)]

    async def in_tasks() -> Any:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, resilience=ONCE, clock=clock) as client:
            await client.push("q", None, items)
            await chain(client)
            return (await client.connection.groups("q"))[0]

    if kind.startswith("asyncio"):
        return told, asyncio.run(in_tasks())
    with Client(url, resilience=ONCE, clock=clock) as client:
        client.push("q", None, items)
        chain(client).run()
        return told, client.connection.groups("q")[0]


KINDS = pytest.mark.parametrize("kind", ["threads", "asyncio"])


def completed(messages: list[Message]) -> Any:
    return dict.fromkeys(messages, "completed")


def nothing_failed(messages: list[Message]) -> Any:
    raise Partial([])


@KINDS
@pytest.mark.parametrize("handler", [completed, nothing_failed])
@pytest.mark.parametrize("faults", [["lose the request"], ["lose the answer"], [AWAY, "lose the answer", AWAY]])
def test_done_work_with_late_record_is_no_failure(
    door: Flaky, clock: ManualClock, kind: str, handler: Handler, faults: list[Fault]
) -> None:
    """The same is asked for until it is answered."""
    door.fail("/v1/settle", *faults)
    told, group = consume(door.url, clock, kind, handler)
    assert (group.acked, group.dead, group.leases) == (3, 0, 0)
    assert told == (["done"] if handler is completed else [])


@KINDS
def test_failure_of_a_single_message_survives_lost_answers(door: Flaky, clock: ManualClock, kind: str) -> None:
    door.fail("/v1/settle", "lose the answer", AWAY)

    def handle(message: Message) -> None:
        raise ValueError("odd")

    told, group = consume(door.url, clock, kind, handle, count=1)
    assert (told, group.acked, group.dead, group.leases) == ([], 0, 1, 0)


@KINDS
def test_settlement_of_an_expired_lease_is_not_repeated(
    door: Flaky, clock: ManualClock, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(messages: list[Message]) -> Any:
        door.fail("/v1/settle", AWAY)
        clock.advance(31)
        return completed(messages)

    told, group = consume(door.url, clock, kind, handle, renew=False)
    assert (told, group.acked, group.dead) == ([], 0, 0)
    assert (caplog.text.count("could not be recorded"), caplog.text.count("was not settled")) == (1, 0)


def test_settlement_that_cannot_succeed_is_logged_once(
    door: Flaky, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    door.fail("/v1/settle", refusal(503, "schema_too_new"))
    told, group = consume(door.url, clock, "threads", completed)
    assert (told, group.acked, group.dead) == ([], 0, 0)
    assert caplog.text.count("could not be recorded") == 1


def test_thread_whose_lease_is_lost_meanwhile_is_told(
    door: Flaky, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "sleep", lambda *_: clock.advance(31))
    door.fail("/v1/settle", AWAY)
    told, group = consume(door.url, clock, "threads, told", completed)
    assert (told, group.acked, group.dead) == (["LeaseLost"], 0, 0)


@KINDS
@pytest.mark.parametrize("raises", [False, True])
def test_late_settlement_is_logged_and_calls_no_success(
    url: str, clock: ManualClock, kind: str, raises: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ids: list[str] = []

    def handle(messages: list[Message]) -> Any:
        ids.extend(one.transaction_id for one in messages)
        clock.advance(31)
        if raises:
            raise ValueError("odd")
        return completed(messages)

    told, group = consume(url, clock, kind, handle, renew=False)
    assert (told, group.acked, group.dead) == ([], 0, 0)
    said = [record.getMessage() for record in caplog.records if "was not settled: invalid_lease" in record.getMessage()]
    assert len(said) == 3
    assert all(one in line for one, line in zip(ids, said, strict=True))


@KINDS
def test_message_settled_by_handler_is_not_reported_late(
    url: str, clock: ManualClock, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By their names, which the consumer does not hear of."""

    def handle(messages: list[Message]) -> Any:
        with Client(url, clock=clock) as other:
            other.ack_batch(
                {"transaction_id": one.transaction_id, "partition_id": one.partition_id, "consumer_group": "g"}
                for one in messages
            )
        return completed(messages)

    told, group = consume(url, clock, kind, handle)
    assert (told, group.acked, group.dead) == (["done"], 3, 0)
    assert "was not settled" not in caplog.text


ODD: list[Any] = ["oops", None, 7, Retry(delay=-1), Retry(delay="soon"), Reject(7), ValueError]  # type: ignore[arg-type]


@KINDS
@pytest.mark.parametrize("how", ["returned", "raised"])
def test_outcome_that_is_none_is_a_failure_of_its_own_message(
    url: str, clock: ManualClock, kind: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(messages: list[Message]) -> Any:
        odd = dict(zip(messages[1:], ODD, strict=False))
        if how == "raised":
            raise Partial(odd)
        return {**completed(messages), **odd}

    _, group = consume(url, clock, kind, handle, count=len(ODD) + 2)
    assert (group.acked, group.dead, group.lag) == (2, len(ODD), 0)
    assert caplog.text.count("invalid outcome") == len(ODD)


@KINDS
def test_invalid_retry_delay_of_a_single_message_buries_it(url: str, clock: ManualClock, kind: str) -> None:
    def handle(message: Message) -> None:
        raise Retry(delay=-1)

    _, group = consume(url, clock, kind, handle, count=1)
    assert (group.dead, group.lag) == (1, 0)


@KINDS
@pytest.mark.parametrize("how", ["returned", "raised"])
def test_ambiguous_message_settles_none(url: str, clock: ManualClock, kind: str, how: str) -> None:
    """Such as when they are named by their ids: those that failed would be taken for done."""

    def handle(messages: list[Message]) -> Any:
        if how == "raised":
            raise Partial([messages[0].id])  # type: ignore[list-item]
        return {messages[0].id: "completed"}

    told, group = consume(url, clock, kind, handle)
    assert (told, group.acked, group.dead) == ([], 0, 3)


@pytest.mark.parametrize("how", ["handler", "callback", "drained"])
def test_async_client_thread_learns_of_lost_lease_at_its_end(url: str, clock: ManualClock, how: str) -> None:
    """Unless no caller waits for it any more."""
    go_on = threading.Event()
    told: list[str] = []

    def slow(message: Message) -> None:
        told.append("began")
        assert go_on.wait(PATIENCE)
        told.append("ended")

    async def quick(message: Message) -> None: ...

    async def failed(message: Message, error: Exception) -> None:
        told.append(type(error).__name__)

    async def job() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(url, clock=clock) as client:
            await client.push("q", None, {"data": 1})
            queue = client.queue("q").group("g").renew_lease(True, 0.005).limit(1)
            consumer = queue.consume(quick if how == "callback" else slow)
            running = asyncio.ensure_future(consumer.on_success(slow).on_error(failed).run())
            try:
                while not told:
                    await asyncio.sleep(0.002)
                await client.connection.seek("q", "g", to="end")
                while not any(guard.lost for guard in consumer.batch_handler._guards):
                    await asyncio.sleep(0.002)
                await asyncio.sleep(3 * batch_handler._CHECK_EVERY)
                assert told == ["began"]
                if how == "drained":
                    await client.drain(0)
                    await running
                    assert told == ["began", "LeaseLost"]
            finally:
                go_on.set()
            await running

    asyncio.run(job())
    if how != "drained":
        assert told == ["began", "ended", "LeaseLost"]
