"""A claim that yields: a failure gives back what its lease still holds of that partition. And ranges that are whole."""

from __future__ import annotations

from ackwise.core import commands as c
from tests.engine.store_harness import StoreHarness, counts, entry


def test_failure_gives_back_the_rest_of_its_partition_unspent(harness: StoreHarness) -> None:
    harness.configure(exclusivity="partition")
    harness.number(4)
    harness.number(2, partition="other")
    hand = harness.claim(9, yields=True)
    first = [d for d in hand.deliveries if d.partition != "other"]
    answers = harness.settle(entry(first[0]), entry(first[1], "retry"))
    assert [(a.verdict, a.lease_ended) for a in answers] == [("acked", False), ("retried", False)]
    again = harness.claim(9)
    assert [(d.body, d.failures) for d in again.deliveries] == [("1", 1), ("2", 0), ("3", 0)]
    assert harness.ack(first[2]) == ["stale"]
    other = [d for d in hand.deliveries if d.partition == "other"]
    assert harness.ack(*other) == ["acked", "acked"]


def test_acks_of_the_same_call_count_before_the_rest_goes_back(harness: StoreHarness) -> None:
    harness.configure(exclusivity="partition")
    harness.number(4)
    held = harness.claim(9, yields=True).deliveries
    answers = harness.settle(entry(held[0], "retry"), entry(held[3]))
    assert [(a.verdict, a.lease_ended) for a in answers] == [("retried", True), ("acked", True)]
    assert counts(harness.group()) == {"acked": 1, "held": 3}
    assert harness.claim(9).bodies == ["0", "1", "2"]


def test_retry_without_yield_keeps_the_rest_held(harness: StoreHarness) -> None:
    harness.configure(exclusivity="partition")
    harness.number(3)
    held = harness.claim(9).deliveries
    assert harness.retry(held[0]) == ["retried"]
    assert harness.claim(9).why == "locked"
    assert harness.ack(*held[1:]) == ["acked", "acked"]


def test_whole_range_is_settled_or_refused_as_one(harness: StoreHarness) -> None:
    harness.number(5)
    held = harness.claim(9).deliveries
    everything = c.ByRange(held[0].lease_id, held[0].lane, 0, 5, whole=True)
    assert harness.ack(held[2]) == ["acked"]
    assert harness.ack(everything) == ["unknown"]
    assert counts(harness.group()) == {"acked": 1, "held": 4}
    assert harness.ack(c.ByRange(held[0].lease_id, held[0].lane, 3, 5, whole=True)) == ["acked"]
    assert counts(harness.group()) == {"acked": 3, "held": 2}


def test_extension_that_keeps_what_is_later(harness: StoreHarness) -> None:
    harness.number(1)
    lease_id = harness.claim(1, seconds=100).lease_id
    now = harness.clock.now()
    kept = harness.do(c.Extend(lease_id=lease_id, lease=10_000_000, keep_later=True))
    assert kept.deadline == now + 100_000_000
    shorter = harness.do(c.Extend(lease_id=lease_id, lease=10_000_000))
    assert shorter.deadline == now + 10_000_000
