"""Retry, reject, release and expiry: what is counted, and when a message is dead."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core.errors import BadInput
from ackwise.core.limits import MICROS
from ackwise.core.policy import Backoff, GroupPolicy
from tests.contract.support import Desk, counts


def fail_until_dead(desk: Desk, most: int = 30) -> int:
    """How many retries it takes."""
    for number in range(1, most):
        if desk.retry(desk.take(), error=f"failure {number}") == ["dead"]:
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
def test_which_failure_is_final(desk: Desk, limit: int, counting: str, failures: int) -> None:
    desk.configure(retry_limit=limit, retry_counting=counting)
    desk.push("a")
    assert fail_until_dead(desk) == failures
    (letter,) = desk.dead()
    assert (letter.reason, letter.failures, letter.deliveries) == ("retry_limit", failures, failures)
    assert letter.error == f"failure {failures}"
    assert counts(desk.group()) == {"dead": 1}


def test_without_a_limit_only_the_delivery_limit_ends_it(desk: Desk) -> None:
    desk.configure(retry_limit=None)
    desk.push("a")
    assert fail_until_dead(desk) == 20
    assert desk.dead()[0].reason == "delivery_limit"


def test_without_any_limit_it_never_dies(desk: Desk) -> None:
    desk.configure(retry_limit=None, delivery_limit=None)
    desk.push("a")
    assert fail_until_dead(desk, most=60) == 60
    assert desk.take().failures == 59


def test_a_retry_says_how_long_to_wait(desk: Desk) -> None:
    desk.push("a")
    desk.retry(desk.take(), delay=2.5)
    assert desk.claim().claimed.until == desk.clock.now() + 2_500_000
    desk.advance(2.5)
    again = desk.take()
    assert (again.attempt, again.failures) == (2, 1)


def test_a_backoff_is_used_where_the_call_says_nothing(desk: Desk) -> None:
    desk.configure(backoff={"kind": "exponential", "seconds": 1, "cap": 3}, retry_limit=9)
    desk.push("a")
    waits = []
    for _ in range(4):
        desk.retry(desk.take())
        until = desk.claim().claimed.until
        assert until is not None
        waits.append((until - desk.clock.now()) / MICROS)
        desk.clock.set(until)
    assert waits == [1, 2, 3, 3]
    desk.retry(desk.take(), delay=0)
    assert len(desk.claim()) == 1


def test_reject_is_dead_at_once_without_a_failure(desk: Desk) -> None:
    desk.push("a")
    assert desk.reject(desk.take(), error="never", error_type="ValueError") == ["dead"]
    (letter,) = desk.dead()
    assert (letter.reason, letter.error, letter.error_type, letter.failures) == ("rejected", "never", "ValueError", 0)


def test_release_spends_no_failure_but_counts_a_delivery(desk: Desk) -> None:
    desk.configure(retry_limit=1)
    desk.push("a")
    for attempt in range(1, 6):
        got = desk.take()
        assert (got.attempt, got.failures) == (attempt, 0)
        assert desk.release(got) == ["released"]
    assert desk.dead() == []


def test_the_delivery_limit_is_final_for_a_retry(desk: Desk) -> None:
    desk.configure(retry_limit=None, delivery_limit=2)
    desk.push("a")
    assert fail_until_dead(desk) == 2
    assert desk.dead()[0].reason == "delivery_limit"


def test_at_the_delivery_limit_a_release_is_probation_and_an_ack_is_fine(desk: Desk) -> None:
    desk.configure(delivery_limit=2)
    desk.push("a", "b")
    for _ in range(2):
        desk.release(*desk.claim().deliveries)
    alone = desk.claim()
    assert alone.bodies == ["a"]
    assert alone.deliveries[0].attempt == 3
    assert desk.ack(*alone.deliveries) == ["acked"]
    assert desk.retry(*desk.claim().deliveries) == ["dead"]


def test_expiry_alone_counts_and_kills_at_the_limit(desk: Desk) -> None:
    desk.configure(retry_limit=2)
    desk.push("a")
    for failures in (0, 1):
        assert desk.take(seconds=5).failures == failures
        desk.advance(5)
    assert desk.claim().why == "empty"
    (letter,) = desk.dead()
    assert (letter.reason, letter.failures, letter.error) == ("retry_limit", 2, "lease expired")


def test_in_company_the_limit_means_probation_then_alone(desk: Desk) -> None:
    desk.configure(retry_limit=2)
    desk.push("a", "b", "c")
    for _ in range(2):
        assert len(desk.claim(seconds=5)) == 3
        desk.advance(5)
    first = desk.claim(seconds=5)
    assert first.bodies == ["a"]
    assert first.deliveries[0].failures == 2
    desk.ack(*first.deliveries)
    assert desk.claim(seconds=5).bodies == ["b"]
    desk.advance(5)
    assert desk.claim().bodies == ["c"]
    assert [letter.payload for letter in desk.dead()] == [b"b"]
    assert counts(desk.group()) == {"acked": 1, "dead": 1, "held": 1}


def test_a_message_on_probation_does_not_hold_up_a_pool(desk: Desk) -> None:
    desk.configure(retry_limit=1)
    desk.push("a", "b")
    desk.claim(2, seconds=5)
    desk.advance(5)
    assert desk.claim().bodies == ["a"]
    assert desk.claim().bodies == ["b"]
    desk.push("c", "d")
    assert desk.claim().bodies == ["c", "d"]


def test_bulk_claims_ignore_probation_and_blame_nobody(desk: Desk) -> None:
    desk.configure(retry_limit=1, delivery_limit=3)
    desk.push("a")
    for _ in range(2):
        assert desk.claim(bulk=True, seconds=5).bodies == ["a"]
        desk.advance(5)
    desk.push("b")
    assert desk.claim(bulk=True, seconds=5).bodies == ["a", "b"]
    desk.advance(5)
    desk.sweep("expire")
    assert [(d.payload, d.reason) for d in desk.dead()] == [(b"a", "delivery_limit")]


def test_where_expiry_does_not_count_it_spends_nothing(desk: Desk) -> None:
    desk.configure(expiry_counts=False, retry_limit=1, delivery_limit=None, backoff={"kind": "fixed", "seconds": 50})
    desk.push("a")
    for attempt in range(1, 30):
        got = desk.take(seconds=5)
        assert (got.attempt, got.failures) == (attempt, 0)
        desk.advance(5)


def test_expiry_waits_for_the_backoff(desk: Desk) -> None:
    desk.configure(backoff={"kind": "fixed", "seconds": 50})
    desk.push("a")
    desk.take(seconds=5)
    desk.advance(5)
    assert desk.claim().why == "delayed"
    desk.advance(50)
    assert desk.take().failures == 1


def test_a_lease_is_over_at_its_deadline_not_before(desk: Desk) -> None:
    desk.push("a", "b")
    first, second = desk.take(seconds=5), desk.take(seconds=5)
    desk.advance(4.999999)
    assert desk.ack(first) == ["acked"]
    desk.advance(0.000001)
    assert desk.ack(second) == ["stale"]


def test_a_dead_message_tells_its_story(desk: Desk) -> None:
    desk.configure(retry_limit=2)
    desk.push("a", txid="t")
    desk.release(desk.take(owner="one"))
    desk.take(owner="two", seconds=1)
    desk.advance(1)
    desk.retry(desk.take(owner="three"), error="bad")
    (letter,) = desk.dead()
    story = [(line["event"], line["owner"]) for line in letter.history]
    assert story == [("release", "one"), ("lease_expiry", "two"), ("retry", "three")]
    assert (letter.deliveries, letter.transaction_id, letter.payload) == (3, "t", b"a")


def test_where_it_failed_last_is_kept(desk: Desk) -> None:
    desk.configure(retry_limit=3)
    desk.push("a")
    desk.retry(desk.take(), error="bad", trace="first")
    desk.retry(desk.take(), error="bad", trace="x" * 5000 + "second\0\ud800")
    desk.reject(desk.take(), error="enough")
    (letter,) = desk.dead()
    first, second, third = letter.history
    assert "trace" not in first
    assert str(second["trace"]) == "x" * 1992 + "second\ufffd?"
    assert "trace" not in third


def test_a_trace_is_text(desk: Desk) -> None:
    desk.push("a")
    with pytest.raises(BadInput, match="trace must be a string, not int"):
        desk.retry(taken := desk.take(), trace=7)
    assert desk.ack(taken) == ["acked"]


def test_expiry_of_many_is_bounded_per_sweep_and_finishes(desk: Desk) -> None:
    desk.configure(delivery_limit=1)
    desk.push(*(str(i) for i in range(7)))
    desk.claim(seconds=1)
    desk.advance(1)
    assert desk.sweep("expire", limit=3) == {"expire": 3}
    assert counts(desk.group()) == {"dead": 3, "held": 4}
    while desk.do(c.Sweep(duties=("expire",), limit=3)).more:
        pass
    assert counts(desk.group()) == {"dead": 7}
    assert desk.group().leases == 0


def test_a_group_may_have_its_own_limit_and_backoff(desk: Desk) -> None:
    desk.push("a")
    policy = GroupPolicy(retry_limit=1)
    desk.do(c.ConfigureGroup(queue="q", group="strict", policy=policy))
    assert desk.retry(desk.take(group="strict")) == ["dead"]
    assert desk.retry(desk.take(group="plain")) == ["retried"]
    desk.do(c.ConfigureGroup(queue="q", group="plain", policy=GroupPolicy(backoff=Backoff(kind="fixed", seconds=9))))
    desk.retry(desk.take(group="plain"))
    assert desk.claim(group="plain").claimed.until == desk.clock.now() + 9 * MICROS
