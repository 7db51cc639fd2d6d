"""Defaults that lose no work: backoff of new queues, leases that are extended, loops that survive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

import ackwise
from ackwise.client.sync.delivery import OnError
from ackwise.clock import ManualClock
from ackwise.core.errors import BadInput, LeaseLost
from ackwise.core.policy import NEW_QUEUE_POLICY
from tests.broker.watched import until
from tests.server.running import Running

BACKOFF = {"kind": "exponential", "seconds": 1.0, "cap": 300.0, "jitter": 0.5}
LOGGER = "ackwise.client"


@pytest.fixture
def fresh(url: str, clock: ManualClock) -> Iterator[ackwise.Connection]:
    """A connection as users open it."""
    with ackwise.connect(url, clock=clock) as connection:
        yield connection


def retries(queue: ackwise.Connection, name: str) -> tuple[object, object]:
    policy = queue.queue(name).policy
    return policy["retry_limit"], policy["backoff"]


def test_queue_of_the_native_api_gets_backoff_and_limit(fresh: ackwise.Connection) -> None:
    fresh.push("one", 1)
    fresh.push_many("many", range(3))
    fresh.create_queue("made")
    with fresh.transaction() as step:
        step.push("moved", 1)
    assert {name: retries(fresh, name) for name in ("one", "many", "made", "moved")} == dict.fromkeys(
        ("one", "many", "made", "moved"), (8, BACKOFF)
    )


def test_chosen_fields_replace_single_defaults(fresh: ackwise.Connection) -> None:
    fresh.create_queue("limited", retry_limit=2)
    fresh.create_queue("plain", ackwise.QueuePolicy())
    assert retries(fresh, "limited") == (2, BACKOFF)
    assert retries(fresh, "plain") == (3, {})


def test_push_over_plain_http_creates_queue_with_backoff(store_url: str, clock: ManualClock) -> None:
    with Running(store_url, clock) as server, ackwise.connect(server.url, clock=clock) as queue:
        httpx2.post(f"{server.url}/v1/push", json={"queue": "q", "payloads": [1]}).raise_for_status()
        assert retries(queue, "q") == (8, BACKOFF)


def test_outage_of_a_minute_dead_letters_nothing(fresh: ackwise.Connection, clock: ManualClock) -> None:
    """Every message fails as long as the handler's database is away."""
    fresh.push_many("q", range(100))
    back_at = clock.now() + 60_000_000
    left = 100
    while left:
        batch = fresh.claim("q", max=100)
        if not batch:
            clock.advance(0.25)
            continue
        for delivery in batch:
            if clock.now() < back_at:
                delivery.retry(error="the database is away")
            else:
                delivery.ack()
                left -= 1
    assert len(fresh.dead_letters("q")) == 0


def test_backoff_lasts_longer_than_a_minute_at_worst_luck() -> None:
    policy = NEW_QUEUE_POLICY
    assert policy.retry_limit is not None
    waits = [policy.backoff.delay_micros(failures, roll=1.0) for failures in range(1, policy.retry_limit)]
    assert sum(waits) > 60_000_000


# leases


def test_work_longer_than_its_lease_runs_once(tmp_path: Path) -> None:
    """On the real clock: the work ends after the first deadline of its lease of one second."""
    with ackwise.connect(f"sqlite:///{tmp_path}/q.db?durability=normal") as queue:
        queue.push_many("q", range(2))
        runs = []
        for delivery in queue.consume("q", lease=1, wait=0, stop_when_empty=True):
            with delivery:
                runs.append(delivery.json())
                deadline = delivery.deadline
                until(lambda deadline=deadline: len(runs) > 1 or datetime.now(UTC) > deadline)  # type: ignore[misc]
        assert (runs, len(queue.dead_letters("q"))) == ([0, 1], 0)


@pytest.mark.parametrize("kind", ["delivery", "batch"])
def test_block_of_a_claim_extends_its_lease(fresh: ackwise.Connection, clock: ManualClock, kind: str) -> None:
    fresh.push("q", 1)
    batch = fresh.claim("q", lease=10)
    with batch[0] if kind == "delivery" else batch:
        for _ in range(3):
            clock.advance(6)
            extended_from_now(fresh, batch, clock)
    assert fresh.stats("q").groups[0].lag == 0


def test_batches_extends_every_lease_that_it_holds(fresh: ackwise.Connection, clock: ManualClock) -> None:
    fresh.push_many("q", range(4))
    seen = []
    for batch in fresh.batches("q", max=1, lease=10, wait=0, stop_when_empty=True, prefetch=2):
        seen += [delivery.json() for delivery in batch]
        for _ in range(2):
            clock.advance(6)
            extended_from_now(fresh, batch, clock)
    assert (seen, fresh.stats("q").groups[0].lag) == ([0, 1, 2, 3], 0)


def test_lease_is_extended_until_its_last_block_ends(fresh: ackwise.Connection, clock: ManualClock) -> None:
    """Two blocks under one lease: the end of the first one leaves the lease to the second."""
    fresh.push_many("q", range(2))
    first, second = fresh.claim("q", max=2, lease=10)
    with second:
        with first:
            pass
        clock.advance(6)
        extended_from_now(fresh, second, clock)
    assert fresh.stats("q").groups[0].lag == 0


def test_lease_is_not_extended_after_the_loop(fresh: ackwise.Connection, clock: ManualClock) -> None:
    fresh.push_many("q", range(2))
    loop = fresh.consume("q", lease=10, wait=0, stop_when_empty=True)
    delivery = next(loop)
    loop.close()
    assert fresh._working._users == {}
    clock.advance(10)
    with pytest.raises(LeaseLost):
        delivery.ack()


def extended_from_now(queue: ackwise.Connection, held: ackwise.Delivery | ackwise.Batch, clock: ManualClock) -> None:
    """Wait until the keeper has extended the lease to ten seconds from now."""
    queue._working.check_soon()
    until(lambda: held.lease.deadline >= clock.now() + 10_000_000)


# loops


def fail_in_block(queue: ackwise.Connection, problem: BaseException, on_error: OnError = "continue") -> None:
    for delivery in queue.consume("q", wait=0, stop_when_empty=True, on_error=on_error):
        with delivery:
            raise problem


def test_loop_continues_after_a_failed_block(queue: ackwise.Connection, caplog: pytest.LogCaptureFixture) -> None:
    queue.push_many("q", range(3))
    done = []
    with caplog.at_level(logging.ERROR, LOGGER):
        for delivery in queue.consume("q", wait=0, stop_when_empty=True):
            with delivery:
                if delivery.json() == 1 and delivery.attempt < 3:
                    raise ValueError("no such order")
                done.append((delivery.json(), delivery.attempt))
    assert sorted(done) == [(0, 1), (1, 3), (2, 1)]
    records = [record for record in caplog.records if record.name == LOGGER]
    assert len(records) == 2
    assert [str(record.exc_info[1]) for record in records if record.exc_info] == ["no such order"] * 2


def test_loop_that_raises_ends_at_the_first_failure(queue: ackwise.Connection) -> None:
    queue.push_many("q", range(2))
    with pytest.raises(ValueError, match="no such order"):
        fail_in_block(queue, ValueError("no such order"), on_error="raise")
    assert [delivery.failures for delivery in queue.claim("q", max=2)] == [1, 0]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_in_a_block_ends_the_loop(queue: ackwise.Connection, interrupt: type[BaseException]) -> None:
    queue.push("q", 1)
    with pytest.raises(interrupt):
        fail_in_block(queue, interrupt())
    assert [delivery.failures for delivery in queue.claim("q")] == [0]


def test_exception_outside_the_block_propagates(queue: ackwise.Connection) -> None:
    queue.push("q", 1)

    def consume() -> None:
        for delivery in queue.consume("q", wait=0, stop_when_empty=True):
            with delivery:
                pass
            raise ValueError("outside")

    with pytest.raises(ValueError, match="outside"):
        consume()


def test_delivery_of_a_claim_still_raises(queue: ackwise.Connection) -> None:
    queue.push("q", 1)
    (delivery,) = queue.claim("q")
    with pytest.raises(ValueError, match="no such order"), delivery:
        raise ValueError("no such order")


@pytest.mark.parametrize("fails", [False, True])
def test_loop_continues_after_a_lost_lease(
    queue: ackwise.Connection, clock: ManualClock, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    queue.push("q", 1)
    attempts = []
    with caplog.at_level(logging.WARNING, LOGGER):
        for delivery in queue.consume("q", lease=10, wait=0, stop_when_empty=True):
            with delivery:
                attempts.append(delivery.attempt)
                if delivery.attempt == 1:
                    queue._working.end(delivery.lease)
                    queue._working.end(delivery.lease)
                    clock.advance(10)
                    if fails:
                        raise ValueError("too late")
    assert attempts == [1, 2]
    assert ("too late" in caplog.text) is fails
    assert ("delivered again" in caplog.text) is not fails


def test_unknown_on_error_is_refused(queue: ackwise.Connection) -> None:
    with pytest.raises(BadInput, match="on_error must be one of continue, raise"):
        next(queue.consume("q", on_error="ignore"))  # type: ignore[arg-type]


def test_async_loop_continues_and_cancellation_propagates(url: str, clock: ManualClock) -> None:
    seen = []

    async def consume() -> None:
        async with ackwise.connect_async(url, clock=clock) as queue:
            queue.new_queue_policy = ackwise.QueuePolicy()
            await queue.push_many("q", range(2))
            async for delivery in queue.consume("q", wait=0, stop_when_empty=True):
                async with delivery:
                    seen.append(delivery.json())
                    if len(seen) == 1:
                        raise ValueError("no such order")
                    raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(consume())
    assert len(seen) == 2
