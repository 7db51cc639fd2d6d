"""Loops over deliveries and batches."""

from __future__ import annotations

import contextlib
import threading

import pytest

import ackwise
from ackwise import errors
from ackwise.clock import ManualClock
from tests.patience import PATIENCE


def test_ack_that_was_refused_ends_what_is_left_of_a_batch(queue: ackwise.Connection) -> None:
    queue.push_many("q", range(3))
    seen: list[tuple[int, int]] = []
    for delivery in queue.consume("q", max=3, stop_when_empty=True):
        seen.append((delivery.json(), delivery.attempt))
        if delivery.attempt == 1:
            queue.release(delivery.lease_id)
            with contextlib.suppress(errors.LeaseLost):
                delivery.ack()
        else:
            delivery.ack()
    assert seen == [(0, 1), (0, 2), (1, 2), (2, 2)]


def test_consume_goes_through_everything(queue: ackwise.Connection) -> None:
    queue.push_many("q", range(25))
    seen = []
    for delivery in queue.consume("q", group="g", max=10, wait=0, stop_when_empty=True):
        with delivery:
            seen.append(delivery.json())
    assert (seen, queue.lag("q", "g"), queue.leases()) == (list(range(25)), 0, [])


def test_consume_settles_nothing_itself(queue: ackwise.Connection) -> None:
    queue.push_many("q", range(3))
    assert len(list(queue.consume("q", group="g", wait=0, stop_when_empty=True))) == 3
    assert queue.groups("q")[0].held == 3


def test_closed_loop_releases_undelivered_messages(queue: ackwise.Connection) -> None:
    queue.push_many("q", [ackwise.Item(payload=n, partition=f"p{n % 3}") for n in range(30)])
    deliveries = queue.consume("q", max=30, wait=0, stop_when_empty=True)
    kept = [next(deliveries) for _ in range(13)]
    deliveries.close()
    others = queue.claim("q", max=30)
    assert sorted(d.json() for d in [*kept, *others]) == list(range(30))
    assert {(d.failures, d.attempt) for d in others} == {(0, 2)}
    assert all(d.ack() == "acked" for d in kept)


def test_lease_is_kept_alive_between_deliveries(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.push_many("q", range(5))
    for delivery in queue.consume("q", lease=10, wait=0, stop_when_empty=True):
        with delivery:
            clock.advance(6)
    assert queue.groups("q")[0].acked == 5


def test_rest_of_a_lost_lease_is_left_to_others(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.push_many("q", range(3))
    seen = []
    for delivery in queue.consume("q", lease=10, wait=0, stop_when_empty=True):
        seen.append(delivery.json())
        if len(seen) == 1:
            clock.advance(10)
        else:
            delivery.ack()
    assert seen == [0, 0, 1, 2]


def test_loop_without_end_must_wait(queue: ackwise.Connection) -> None:
    with pytest.raises(errors.BadInput, match="stop_when_empty"):
        next(queue.consume("q", wait=0))


def test_consume_wakes_for_a_push_and_ends_with_the_drain(queue: ackwise.Connection) -> None:
    queue.create_queue("q")
    got = threading.Event()
    seen = []

    def work() -> None:
        for delivery in queue.consume("q", wait=60):
            with delivery:
                seen.append(delivery.json())
            got.set()

    thread = threading.Thread(target=work)
    thread.start()
    queue.push("q", "hello")
    assert got.wait(PATIENCE)
    queue.drain(grace=30)
    thread.join(PATIENCE)
    assert (thread.is_alive(), seen) == (False, ["hello"])


def test_next_batch_acks_the_last(queue: ackwise.Connection) -> None:
    queue.push_many("q", range(25))
    seen = []
    for batch in queue.batches("q", group="g", max=10, wait=0, stop_when_empty=True):
        assert len(queue.leases()) == 1
        seen += [d.json() for d in batch]
    assert (seen, queue.groups("q")[0].acked, queue.leases()) == (list(range(25)), 25, [])


def test_batch_settled_by_hand_is_left_alone(queue: ackwise.Connection) -> None:
    queue.push_many("q", range(4))
    rounds = 0
    for batch in queue.batches("q", max=4, wait=0, stop_when_empty=True):
        rounds += 1
        if rounds == 1:
            batch[1].retry(error="once more")
        elif rounds == 2:
            batch.reject("enough")
    stats = queue.groups("q")[0]
    assert (rounds, stats.acked, stats.dead) == (2, 3, 1)


def test_batch_in_hand_at_the_end_stays_with_its_holder(queue: ackwise.Connection) -> None:
    queue.push_many("q", range(4))
    batches = queue.batches("q", max=2, wait=0, stop_when_empty=True)
    batch = next(batches)
    batches.close()
    assert batch.ack() == "acked"
    assert queue.stats("q").groups[0].lag == 2


def test_late_ack_raises_and_next_batch_is_released(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.push_many("q", range(4))
    batches = queue.batches("q", max=2, lease=10, wait=0, stop_when_empty=True)
    next(batches)
    clock.advance(10)
    with pytest.raises(errors.LeaseLost):
        next(batches)
    assert queue.leases() == []
    assert len(queue.claim("q", max=4)) == 4
