"""A claim that yields: a failure gives back what its lease still holds of that partition. And ranges that are whole."""

from __future__ import annotations

from ackwise.core import commands as c
from tests.contract.support import Desk, counts, entry


def test_a_failure_gives_back_the_rest_of_its_partition_unspent(desk: Desk) -> None:
    desk.configure(exclusivity="partition")
    desk.number(4)
    desk.number(2, partition="other")
    hand = desk.claim(9, yields=True)
    first = [d for d in hand.deliveries if d.partition != "other"]
    answers = desk.settle(entry(first[0]), entry(first[1], "retry"))
    assert [(a.verdict, a.lease_ended) for a in answers] == [("acked", False), ("retried", False)]
    again = desk.claim(9)
    assert [(d.body, d.failures) for d in again.deliveries] == [("1", 1), ("2", 0), ("3", 0)]
    assert desk.ack(first[2]) == ["stale"]
    other = [d for d in hand.deliveries if d.partition == "other"]
    assert desk.ack(*other) == ["acked", "acked"]


def test_acks_of_the_same_call_count_before_the_rest_goes_back(desk: Desk) -> None:
    desk.configure(exclusivity="partition")
    desk.number(4)
    held = desk.claim(9, yields=True).deliveries
    answers = desk.settle(entry(held[0], "retry"), entry(held[3]))
    assert [(a.verdict, a.lease_ended) for a in answers] == [("retried", True), ("acked", True)]
    assert counts(desk.group()) == {"acked": 1, "held": 3}
    assert desk.claim(9).bodies == ["0", "1", "2"]


def test_without_it_the_rest_stays_held(desk: Desk) -> None:
    desk.configure(exclusivity="partition")
    desk.number(3)
    held = desk.claim(9).deliveries
    assert desk.retry(held[0]) == ["retried"]
    assert desk.claim(9).why == "locked"
    assert desk.ack(*held[1:]) == ["acked", "acked"]


def test_a_whole_range_is_settled_or_refused_as_one(desk: Desk) -> None:
    desk.number(5)
    held = desk.claim(9).deliveries
    everything = c.ByRange(held[0].lease_id, held[0].lane, 0, 5, whole=True)
    assert desk.ack(held[2]) == ["acked"]
    assert desk.ack(everything) == ["unknown"]
    assert counts(desk.group()) == {"acked": 1, "held": 4}
    assert desk.ack(c.ByRange(held[0].lease_id, held[0].lane, 3, 5, whole=True)) == ["acked"]
    assert counts(desk.group()) == {"acked": 3, "held": 2}


def test_an_extension_that_keeps_what_is_later(desk: Desk) -> None:
    desk.number(1)
    lease_id = desk.claim(1, seconds=100).lease_id
    now = desk.clock.now()
    kept = desk.do(c.Extend(lease_id=lease_id, lease=10_000_000, keep_later=True))
    assert kept.deadline == now + 100_000_000
    shorter = desk.do(c.Extend(lease_id=lease_id, lease=10_000_000))
    assert shorter.deadline == now + 10_000_000
