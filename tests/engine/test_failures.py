"""Retry, reject, release and expiry: what is counted, and when a message is dead."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core.errors import BadInput
from ackwise.core.policy import Backoff, GroupPolicy
from ackwise.core.validation import MICROS
from tests.engine.store_harness import StoreHarness, counts


def fail_until_dead(harness: StoreHarness, most: int = 30) -> int:
    """How many retries it takes."""
    for number in range(1, most):
        if harness.retry(harness.take(), error=f"failure {number}") == ["dead"]:
            return number
    return most


@pytest.mark.parametrize(
    ("limit", "counting", "failures"),
    [
        (3, "failures", 3),
        (1, "failures", 1),
        (0, "failures", 1),
        (0, "retries", 1),
        (1, "retries", 2),
        (3, "retries", 4),
    ],
)
def test_retry_limit_decides_which_failure_is_final(
    harness: StoreHarness, limit: int, counting: str, failures: int
) -> None:
    harness.configure(retry_limit=limit, retry_counting=counting)
    harness.push("a")
    assert fail_until_dead(harness) == failures
    (letter,) = harness.dead()
    assert (letter.reason, letter.failures, letter.deliveries) == ("retry_limit", failures, failures)
    assert letter.error == f"failure {failures}"
    assert counts(harness.group()) == {"dead": 1}


def test_message_without_retry_limit_dies_at_the_delivery_limit(harness: StoreHarness) -> None:
    harness.configure(retry_limit=None)
    harness.push("a")
    assert fail_until_dead(harness) == 20
    assert harness.dead()[0].reason == "delivery_limit"


def test_message_without_any_limit_never_dies(harness: StoreHarness) -> None:
    harness.configure(retry_limit=None, delivery_limit=None)
    harness.push("a")
    assert fail_until_dead(harness, most=60) == 60
    assert harness.take().failures == 59


def test_retry_says_how_long_to_wait(harness: StoreHarness) -> None:
    harness.push("a")
    harness.retry(harness.take(), delay=2.5)
    assert harness.claim().claimed.until == harness.clock.now() + 2_500_000
    harness.advance(2.5)
    again = harness.take()
    assert (again.attempt, again.failures) == (2, 1)


def test_backoff_is_used_where_the_call_says_nothing(harness: StoreHarness) -> None:
    harness.configure(backoff={"kind": "exponential", "seconds": 1, "cap": 3}, retry_limit=9)
    harness.push("a")
    waits = []
    for _ in range(4):
        harness.retry(harness.take())
        until = harness.claim().claimed.until
        assert until is not None
        waits.append((until - harness.clock.now()) / MICROS)
        harness.clock.set(until)
    assert waits == [1, 2, 3, 3]
    harness.retry(harness.take(), delay=0)
    assert len(harness.claim()) == 1


def test_reject_is_dead_at_once_without_a_failure(harness: StoreHarness) -> None:
    harness.push("a")
    assert harness.reject(harness.take(), error="never", error_type="ValueError") == ["dead"]
    (letter,) = harness.dead()
    assert (letter.reason, letter.error, letter.error_type, letter.failures) == ("rejected", "never", "ValueError", 0)


def test_release_spends_no_failure_but_counts_a_delivery(harness: StoreHarness) -> None:
    harness.configure(retry_limit=1)
    harness.push("a")
    for attempt in range(1, 6):
        got = harness.take()
        assert (got.attempt, got.failures) == (attempt, 0)
        assert harness.release(got) == ["released"]
    assert harness.dead() == []


def test_delivery_limit_is_final_for_a_retry(harness: StoreHarness) -> None:
    harness.configure(retry_limit=None, delivery_limit=2)
    harness.push("a")
    assert fail_until_dead(harness) == 2
    assert harness.dead()[0].reason == "delivery_limit"


def test_release_at_delivery_limit_delivers_alone(harness: StoreHarness) -> None:
    harness.configure(delivery_limit=2)
    harness.push("a", "b")
    for _ in range(2):
        harness.release(*harness.claim().deliveries)
    alone = harness.claim()
    assert alone.bodies == ["a"]
    assert alone.deliveries[0].attempt == 3
    assert harness.ack(*alone.deliveries) == ["acked"]
    assert harness.retry(*harness.claim().deliveries) == ["dead"]


def test_expiry_alone_counts_and_kills_at_the_limit(harness: StoreHarness) -> None:
    harness.configure(retry_limit=2)
    harness.push("a")
    for failures in (0, 1):
        assert harness.take(seconds=5).failures == failures
        harness.advance(5)
    assert harness.claim().why == "empty"
    (letter,) = harness.dead()
    assert (letter.reason, letter.failures, letter.error) == ("retry_limit", 2, "lease expired")


def test_failed_batch_at_its_limit_is_claimed_one_by_one(harness: StoreHarness) -> None:
    harness.configure(retry_limit=2)
    harness.push("a", "b", "c")
    for _ in range(2):
        assert len(harness.claim(seconds=5)) == 3
        harness.advance(5)
    first = harness.claim(seconds=5)
    assert first.bodies == ["a"]
    assert first.deliveries[0].failures == 2
    harness.ack(*first.deliveries)
    assert harness.claim(seconds=5).bodies == ["b"]
    harness.advance(5)
    assert harness.claim().bodies == ["c"]
    assert [letter.payload for letter in harness.dead()] == [b"b"]
    assert counts(harness.group()) == {"acked": 1, "dead": 1, "held": 1}


def test_message_on_probation_does_not_hold_up_a_pool(harness: StoreHarness) -> None:
    harness.configure(retry_limit=1)
    harness.push("a", "b")
    harness.claim(2, seconds=5)
    harness.advance(5)
    assert harness.claim().bodies == ["a"]
    assert harness.claim().bodies == ["b"]
    harness.push("c", "d")
    assert harness.claim().bodies == ["c", "d"]


def test_bulk_claims_ignore_probation_and_charge_no_message(harness: StoreHarness) -> None:
    harness.configure(retry_limit=1, delivery_limit=3)
    harness.push("a")
    for _ in range(2):
        assert harness.claim(bulk=True, seconds=5).bodies == ["a"]
        harness.advance(5)
    harness.push("b")
    assert harness.claim(bulk=True, seconds=5).bodies == ["a", "b"]
    harness.advance(5)
    harness.sweep("expire")
    assert [(d.payload, d.reason) for d in harness.dead()] == [(b"a", "delivery_limit")]


def test_expiry_that_does_not_count_spends_no_retry(harness: StoreHarness) -> None:
    harness.configure(expiry_counts=False, retry_limit=1, delivery_limit=None, backoff={"kind": "fixed", "seconds": 50})
    harness.push("a")
    for attempt in range(1, 30):
        got = harness.take(seconds=5)
        assert (got.attempt, got.failures) == (attempt, 0)
        harness.advance(5)


def test_expiry_waits_for_the_backoff(harness: StoreHarness) -> None:
    harness.configure(backoff={"kind": "fixed", "seconds": 50})
    harness.push("a")
    harness.take(seconds=5)
    harness.advance(5)
    assert harness.claim().why == "delayed"
    harness.advance(50)
    assert harness.take().failures == 1


def test_lease_is_over_at_its_deadline_not_before(harness: StoreHarness) -> None:
    harness.push("a", "b")
    first, second = harness.take(seconds=5), harness.take(seconds=5)
    harness.advance(4.999999)
    assert harness.ack(first) == ["acked"]
    harness.advance(0.000001)
    assert harness.ack(second) == ["stale"]


def test_dead_message_tells_its_story(harness: StoreHarness) -> None:
    harness.configure(retry_limit=2)
    harness.push("a", txid="t")
    harness.release(harness.take(owner="one"))
    harness.take(owner="two", seconds=1)
    harness.advance(1)
    harness.retry(harness.take(owner="three"), error="bad")
    (letter,) = harness.dead()
    story = [(line["event"], line["owner"]) for line in letter.history]
    assert story == [("release", "one"), ("lease_expiry", "two"), ("retry", "three")]
    assert (letter.deliveries, letter.transaction_id, letter.payload) == (3, "t", b"a")


def test_history_keeps_the_last_trace(harness: StoreHarness) -> None:
    harness.configure(retry_limit=3)
    harness.push("a")
    harness.retry(harness.take(), error="bad", trace="first")
    harness.retry(harness.take(), error="bad", trace="x" * 5000 + "second\0\ud800")
    harness.reject(harness.take(), error="enough")
    (letter,) = harness.dead()
    first, second, third = letter.history
    assert "trace" not in first
    assert str(second["trace"]) == "x" * 1992 + "second\ufffd?"
    assert "trace" not in third


def test_trace_is_text(harness: StoreHarness) -> None:
    harness.push("a")
    with pytest.raises(BadInput, match="trace must be a string, not int"):
        harness.retry(taken := harness.take(), trace=7)
    assert harness.ack(taken) == ["acked"]


def test_expiry_of_many_is_bounded_per_sweep_and_finishes(harness: StoreHarness) -> None:
    harness.configure(delivery_limit=1)
    harness.push(*(str(i) for i in range(7)))
    harness.claim(seconds=1)
    harness.advance(1)
    assert harness.sweep("expire", limit=3) == {"expire": 3}
    assert counts(harness.group()) == {"dead": 3, "held": 4}
    while harness.do(c.Sweep(duties=("expire",), limit=3)).more:
        pass
    assert counts(harness.group()) == {"dead": 7}
    assert harness.group().leases == 0


def test_group_may_have_its_own_limit_and_backoff(harness: StoreHarness) -> None:
    harness.push("a")
    policy = GroupPolicy(retry_limit=1)
    harness.do(c.ConfigureGroup(queue="q", group="strict", policy=policy))
    assert harness.retry(harness.take(group="strict")) == ["dead"]
    assert harness.retry(harness.take(group="plain")) == ["retried"]
    harness.do(c.ConfigureGroup(queue="q", group="plain", policy=GroupPolicy(backoff=Backoff(kind="fixed", seconds=9))))
    harness.retry(harness.take(group="plain"))
    assert harness.claim(group="plain").claimed.until == harness.clock.now() + 9 * MICROS
