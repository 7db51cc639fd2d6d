"""How one delivery ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

import ackwise
from ackwise import Reject, Retry, errors
from ackwise.clock import ManualClock, wall_now
from ackwise.core.settlement import Verdict
from ackwise.wire.timestamps import moment


def one(queue: ackwise.Connection) -> ackwise.Delivery:
    queue.push("q", {"n": 1})
    return queue.claim("q", lease=10)[0]


def delivery_price(order: dict[str, int]) -> int:
    return order["price"]


def test_leaving_the_block_acks(queue: ackwise.Connection) -> None:
    with one(queue) as delivery:
        assert delivery.json() == {"n": 1}
    assert (queue.groups("q")[0].acked, queue.leases()) == (1, [])


def test_exception_is_recorded_as_a_retry_and_goes_on(queue: ackwise.Connection) -> None:
    with pytest.raises(ZeroDivisionError), one(queue):
        _ = 1 / 0
    (again,) = queue.claim("q")
    assert (again.attempt, again.failures) == (2, 1)


def test_dead_letter_names_the_exception(queue: ackwise.Connection) -> None:
    queue.create_queue("q", retry_limit=1)
    with pytest.raises(KeyError), one(queue):
        delivery_price({})
    (letter,) = queue.dead_letters("q")
    assert (letter.reason, letter.error, letter.error_type) == ("retry_limit", "'price'", "KeyError")
    assert letter.json() == {"n": 1}


def test_retry_is_swallowed_and_chooses_the_delay(queue: ackwise.Connection, clock: ManualClock) -> None:
    with one(queue):
        raise Retry(delay=timedelta(seconds=60), error="later")
    batch = queue.claim("q")
    assert (batch.empty, batch.until) == ("delayed", moment(clock.now()) + timedelta(seconds=60))
    clock.advance(60)
    assert queue.claim("q")[0].failures == 1


def test_retry_takes_its_error_from_its_cause(queue: ackwise.Connection) -> None:
    queue.create_queue("q", retry_limit=1)
    with one(queue):
        try:
            raise OSError("disk on fire")
        except OSError as problem:
            raise Retry from problem
    (letter,) = queue.dead_letters()
    assert (letter.error, letter.error_type) == ("disk on fire", "OSError")


def test_reject_is_swallowed_and_final(queue: ackwise.Connection) -> None:
    with one(queue):
        raise Reject("no such customer")
    (letter,) = queue.dead_letters("q")
    assert (letter.reason, letter.error, letter.failures) == ("rejected", "no such customer", 0)


def test_interruption_costs_nothing(queue: ackwise.Connection) -> None:
    with pytest.raises(KeyboardInterrupt), one(queue):
        raise KeyboardInterrupt
    (again,) = queue.claim("q")
    assert (again.attempt, again.failures) == (2, 0)


def test_delivery_settled_inside_its_block_stays_settled(queue: ackwise.Connection) -> None:
    def work() -> None:
        with one(queue) as delivery:
            assert delivery.ack() is Verdict.ACKED
            raise ValueError("after the fact")

    with pytest.raises(ValueError, match="after the fact"):
        work()
    assert queue.groups("q")[0].acked == 1
    with one(queue) as delivery:
        assert delivery.retry(error="no") is Verdict.RETRIED
    assert queue.claim("q")[0].failures == 1


def test_second_settlement_is_said_to_be_one(queue: ackwise.Connection) -> None:
    delivery = one(queue)
    assert delivery.ack() is Verdict.ACKED
    assert delivery.ack() is Verdict.ALREADY
    assert delivery.retry() is Verdict.ALREADY
    assert delivery.verdict is Verdict.ACKED


def test_last_failure_answers_dead(queue: ackwise.Connection) -> None:
    queue.create_queue("q", retry_limit=2)
    assert one(queue).retry(error="first") is Verdict.RETRIED
    assert queue.claim("q")[0].retry(error=RuntimeError("second")) is Verdict.DEAD
    (letter,) = queue.dead_letters()
    assert (letter.error, letter.error_type, letter.failures) == ("second", "RuntimeError", 2)


def test_release_hands_back_unspent(queue: ackwise.Connection) -> None:
    assert one(queue).release() is Verdict.RELEASED
    assert queue.claim("q")[0].failures == 0


def test_reject_by_hand(queue: ackwise.Connection) -> None:
    assert one(queue).reject("bad") is Verdict.DEAD


def test_ack_after_the_lease_ran_out_is_refused(queue: ackwise.Connection, clock: ManualClock) -> None:
    delivery = one(queue)
    clock.advance(10)
    with pytest.raises(errors.LeaseLost, match="invalid_lease"):
        delivery.ack()
    with pytest.raises(errors.LeaseLost), one(queue):
        clock.advance(10)


def test_lost_lease_does_not_hide_the_exception(queue: ackwise.Connection, clock: ManualClock) -> None:
    def work() -> None:
        with one(queue):
            clock.advance(10)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        work()
    assert "invalid_lease" in caught.value.__notes__[0]


def test_extend_moves_the_deadline_and_never_revives(queue: ackwise.Connection, clock: ManualClock) -> None:
    delivery = one(queue)
    clock.advance(9)
    assert delivery.extend(20) == delivery.deadline == moment(clock.now()) + timedelta(seconds=20)
    clock.advance(19)
    assert delivery.extend() == moment(clock.now()) + timedelta(seconds=10)
    clock.advance(10)
    with pytest.raises(errors.LeaseLost, match="invalid_lease"):
        delivery.extend(20)


def test_unknown_delivery_is_not_found(queue: ackwise.Connection) -> None:
    delivery = one(queue)
    (answer,) = queue.settle([(delivery.id[:-1] + "9", "ack")])
    assert answer.verdict is Verdict.UNKNOWN
    queue.delete_queue("q")
    with pytest.raises(errors.LeaseLost):
        delivery.ack()


def test_delivery_with_auto_ack_is_already_settled(queue: ackwise.Connection) -> None:
    queue.push("q", 1)
    (delivery,) = queue.claim("q", auto_ack=True)
    assert delivery.verdict is Verdict.ACKED
    assert delivery.ack() is Verdict.ALREADY
    with pytest.raises(Retry), delivery:
        raise Retry
    assert queue.lag("q", delivery.group) == 0


@pytest.mark.parametrize("delay", [-1, float("nan"), "soon", True])
def test_bad_delay_settles_nothing(queue: ackwise.Connection, delay: float) -> None:
    delivery = one(queue)
    with pytest.raises(errors.BadInput):
        delivery.retry(delay=delay)
    assert delivery.ack() is Verdict.ACKED


@pytest.mark.parametrize("step", [-3600, 86400])
def test_deadline_after_a_clock_step_is_by_wall_clock(queue: ackwise.Connection, clock: ManualClock, step: int) -> None:
    queue.push("q", "a")
    (delivery,) = queue.claim("q", lease=60)
    clock.step_wall(step)
    expected = moment(wall_now(clock)) + timedelta(seconds=60)
    assert queue.leases("q")[0].deadline == expected  # over HTTP, each answer has both clocks
    assert delivery.deadline == expected
    clock.advance(30)
    assert delivery.extend(60) == delivery.deadline == moment(wall_now(clock)) + timedelta(seconds=60)
    assert queue.extend(delivery.lease.claimed.lease_id, 90) == moment(wall_now(clock)) + timedelta(seconds=90)
    clock.advance(59)
    assert delivery.ack() == "acked"


@pytest.mark.parametrize("step", [-3600, 86400])
def test_lease_keeper_under_a_clock_step_keeps_its_lease(
    queue: ackwise.Connection, clock: ManualClock, step: int
) -> None:
    queue.push("q", "a")
    batch = queue.claim("q", lease=60)
    clock.step_wall(step)
    queue.leases("q")
    assert batch.lease.remaining(queue.transport.now()) == 60_000_000
    assert batch.lease.duration == 60_000_000
    again = queue.claim("q", lease=60)
    assert (again.empty, again.until) == ("empty", None)
