"""When a failure is final, and what becomes of a delivery when it ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.core.lifecycle import State
from ackwise.core.policy import Backoff, QueuePolicy
from ackwise.core.settlement import (
    Attempt,
    Outcome,
    Reason,
    Verdict,
    failure_is_final,
    on_expiry,
    on_max_wait,
    on_reject,
    on_release,
    on_retry,
)
from ackwise.core.validation import MICROS

NOW = 1_000_000_000


def attempt(
    failures: int = 0, deliveries: int = 1, *, probation: bool = False, alone: bool = True, bulk: bool = False
) -> Attempt:
    return Attempt(failures, deliveries, probation, alone, bulk)


@pytest.mark.parametrize(
    ("limit", "counting", "first_final"),
    [
        (0, "failures", 1),
        (1, "failures", 1),
        (2, "failures", 2),
        (3, "failures", 3),
        (0, "retries", 1),
        (1, "retries", 2),
        (3, "retries", 4),
        (None, "failures", None),
        (None, "retries", None),
    ],
)
def test_table_of_final_failures(limit: int | None, counting: str, first_final: int | None) -> None:
    policy = QueuePolicy(retry_limit=limit, retry_counting=counting)  # type: ignore[arg-type]
    final = [n for n in range(1, 10) if failure_is_final(policy, n)]
    assert final == ([] if first_final is None else list(range(first_final, 10)))


def test_retry_waits_for_what_it_says_else_for_the_backoff() -> None:
    policy = QueuePolicy(backoff=Backoff(kind="fixed", seconds=9))
    assert on_retry(policy, attempt(), NOW, 5, 0.0).due_at == NOW + 5
    assert on_retry(policy, attempt(), NOW, 0, 0.0).due_at == NOW
    assert on_retry(policy, attempt(), NOW, None, 0.0).due_at == NOW + 9 * MICROS


def test_retry_adds_a_failure_and_keeps_probation() -> None:
    fate = on_retry(QueuePolicy(), attempt(1, probation=True), NOW, None, 0.0)
    assert (fate.state, fate.failures, fate.probation, fate.reason) == (State.WAITING, 2, True, None)


def test_last_retry_is_dead_or_dropped() -> None:
    assert on_retry(QueuePolicy(), attempt(2), NOW, None, 0.0).state is State.DEAD
    dropped = on_retry(QueuePolicy(dead_letters=False), attempt(2), NOW, None, 0.0)
    assert (dropped.state, dropped.reason) == (State.EXPIRED, Reason.RETRY_LIMIT)


@pytest.mark.parametrize(
    ("retry_limit", "delivery_limit", "effective"),
    [
        (3, "auto", 20),
        (10, "auto", 20),
        (11, "auto", 22),
        (0, "auto", 20),
        (None, "auto", 20),
        (3, 7, 7),
        (3, None, None),
    ],
)
def test_delivery_limit_auto_depends_on_the_retry_limit(
    retry_limit: int | None, delivery_limit: int | None, effective: int | None
) -> None:
    policy = QueuePolicy(retry_limit=retry_limit, delivery_limit=delivery_limit)
    assert policy.effective_delivery_limit == effective


@pytest.mark.parametrize("deliveries", [4, 5, 6])
def test_delivery_limit_ends_retries_and_expiries_in_death(deliveries: int) -> None:
    policy = QueuePolicy(retry_limit=None, delivery_limit=5)
    ends = attempt(0, deliveries, alone=False, bulk=True)
    dead = deliveries >= 5
    for fate in (on_retry(policy, ends, NOW, 0, 0.0), on_expiry(policy, ends, NOW, 0.0)):
        assert fate.state is (State.DEAD if dead else State.WAITING)
        assert fate.reason is (Reason.DELIVERY_LIMIT if dead else None)
    released = on_release(policy, ends, NOW)
    assert (released.state, released.probation, released.failures) == (State.WAITING, dead, 0)


def test_retry_limit_is_named_before_the_delivery_limit() -> None:
    policy = QueuePolicy(retry_limit=1, delivery_limit=1)
    assert on_retry(policy, attempt(), NOW, None, 0.0).reason is Reason.RETRY_LIMIT


def test_expiry_kills_only_who_was_alone() -> None:
    policy = QueuePolicy(retry_limit=2)
    assert on_expiry(policy, attempt(0), NOW, 0.0).state is State.WAITING
    assert on_expiry(policy, attempt(1), NOW, 0.0).state is State.DEAD
    company = on_expiry(policy, attempt(1, alone=False), NOW, 0.0)
    assert (company.state, company.failures, company.probation) == (State.WAITING, 2, True)
    bulk = on_expiry(policy, attempt(1, bulk=True), NOW, 0.0)
    assert (bulk.state, bulk.probation) == (State.WAITING, True)
    early = on_expiry(policy, attempt(0, alone=False), NOW, 0.0)
    assert (early.failures, early.probation) == (1, False)


def test_expiry_that_does_not_count_spends_nothing() -> None:
    policy = QueuePolicy(retry_limit=1, expiry_counts=False, backoff=Backoff(kind="fixed", seconds=9))
    fate = on_expiry(policy, attempt(0), NOW, 0.0)
    assert (fate.state, fate.failures, fate.due_at, fate.probation) == (State.WAITING, 0, NOW, False)


def test_release_is_free_and_due_at_once() -> None:
    fate = on_release(QueuePolicy(backoff=Backoff(kind="fixed", seconds=9)), attempt(2), NOW)
    assert (fate.state, fate.failures, fate.due_at, fate.probation) == (State.WAITING, 2, NOW, False)


def test_reject_is_dead_without_a_failure() -> None:
    fate = on_reject(QueuePolicy(), attempt(1))
    assert (fate.state, fate.failures, fate.reason) == (State.DEAD, 1, Reason.REJECTED)
    assert on_reject(QueuePolicy(dead_letters=False), attempt(1)).state is State.EXPIRED


def test_max_wait_is_dead_or_dropped() -> None:
    assert on_max_wait(QueuePolicy(), 2).state is State.DEAD
    assert on_max_wait(QueuePolicy(dead_letters=False), 2).state is State.EXPIRED


def test_verdicts_say_whether_something_was_settled() -> None:
    settled = {v.value for v in Verdict if v.settled}
    assert settled == {"acked", "retried", "dead", "released"}
    assert {o.value for o in Outcome} == {"ack", "retry", "reject", "release"}


policies = st.builds(
    QueuePolicy,
    retry_limit=st.none() | st.integers(0, 5),
    retry_counting=st.sampled_from(["failures", "retries"]),
    delivery_limit=st.none() | st.just("auto") | st.integers(1, 10),
    expiry_counts=st.booleans(),
    dead_letters=st.booleans(),
)
attempts = st.builds(Attempt, st.integers(0, 8), st.integers(1, 30), st.booleans(), st.booleans(), st.booleans())


@given(policies, attempts)
def test_fate_keeps_failures_and_probation(policy: QueuePolicy, ends: Attempt) -> None:
    fates = (on_retry(policy, ends, NOW, 0, 0.0), on_expiry(policy, ends, NOW, 0.0), on_release(policy, ends, NOW))
    for fate in fates:
        assert ends.failures <= fate.failures <= ends.failures + 1
        if fate.state is State.WAITING:
            assert fate.probation or not ends.probation
            assert fate.reason is None
        else:
            assert fate.reason is not None


@given(policies, st.booleans())
def test_message_that_always_fails_is_dead_within_its_limits(policy: QueuePolicy, by_expiry: bool) -> None:
    """No poison loop: with any limit at all, a message that is alone dies."""
    failures, probation = 0, False
    for deliveries in range(1, 60):
        ends = Attempt(failures, deliveries, probation, True, False)
        fate = on_expiry(policy, ends, NOW, 0.0) if by_expiry else on_retry(policy, ends, NOW, 0, 0.0)
        if fate.state is not State.WAITING:
            return
        failures, probation = fate.failures, fate.probation
    unlimited = policy.retry_limit is None or (by_expiry and not policy.expiry_counts)
    assert policy.effective_delivery_limit is None
    assert unlimited
