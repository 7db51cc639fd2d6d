"""Claim: which lanes, how many, in what order and how fairly."""

from __future__ import annotations

from collections import Counter

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import UnknownQueue
from ackwise.core.policy import QueuePolicy
from ackwise.core.validation import MICROS
from tests.engine.store_harness import StoreHarness, counts


def test_claim_takes_a_lane_up_to_its_maximum(harness: StoreHarness) -> None:
    harness.number(5)
    first, second = harness.claim(3), harness.claim(3)
    assert (first.bodies, second.bodies) == (["0", "1", "2"], ["3", "4"])
    assert harness.claim().why == "empty"
    assert first.lease_id != second.lease_id
    assert second.claimed.lease_no > first.claimed.lease_no


def test_first_delivery_is_attempt_one_without_failures(harness: StoreHarness) -> None:
    harness.push("a")
    got = harness.take()
    assert (got.attempt, got.failures) == (1, 0)


def test_lease_time_is_the_claims_or_the_queues(harness: StoreHarness) -> None:
    harness.configure(lease_seconds=45)
    harness.push("a", "b")
    now = harness.clock.now()
    assert harness.claim(1).claimed.deadline == now + 45 * MICROS
    assert harness.claim(1, seconds=7).claimed.deadline == now + 7 * MICROS


def test_claim_of_several_lanes_has_one_lease(harness: StoreHarness) -> None:
    for name in "abc":
        harness.push(f"{name}1", f"{name}2", partition=name)
    hand = harness.claim(5)
    assert len(hand) == 5
    assert len({d.lane for d in hand.deliveries}) == 3
    assert {d.lease_id for d in hand.deliveries} == {hand.lease_id}
    (lease,) = harness.store.ask(q.ListLeases(queue="q"))
    assert (lease.granted, lease.held) == (5, 5)


def test_bound_on_the_number_of_partitions(harness: StoreHarness) -> None:
    for name in "abc":
        harness.push("1", "2", partition=name)
    assert {d.partition for d in harness.claim(10, most_partitions=2).deliveries} == {"a", "b"}


def test_wildcard_goes_round_the_lanes(harness: StoreHarness) -> None:
    for name in "abcd":
        harness.push(*(str(i) for i in range(6)), partition=name)
    served: Counter[str] = Counter()
    for turn in range(1, 25):
        harness.advance(0.001)
        served[harness.take().partition] += 1
        assert max(served.values()) - min(served[name] for name in "abcd") <= 1, f"unfair after {turn}"
    assert served == dict.fromkeys("abcd", 6)


def test_busy_lane_does_not_starve_a_quiet_one(harness: StoreHarness) -> None:
    harness.push(*(str(i) for i in range(100)), partition="busy")
    harness.claim(10)
    harness.advance(0.001)
    harness.push("quiet", partition="quiet")
    seen = []
    for _ in range(3):
        harness.advance(0.001)
        harness.push("more", partition="busy")
        seen += [d.partition for d in harness.claim(1).deliveries]
    assert "quiet" in seen


def test_lower_numbers_first(harness: StoreHarness) -> None:
    harness.push("p9", priority=9)
    harness.push("p0")
    harness.push("p5", priority=5, partition="other")
    assert harness.claim(10).bodies == ["p0", "p5", "p9"]


def test_priorities_come_before_waiting_time(harness: StoreHarness) -> None:
    harness.push("old and low", priority=1)
    harness.advance(100)
    harness.push("new and high", partition="z")
    assert harness.claim(1).bodies == ["new and high"]


def test_filter_by_priority(harness: StoreHarness) -> None:
    for priority in (0, 1, 2):
        harness.push(f"p{priority}", priority=priority)
    assert harness.claim(10, priorities=(1, 2)).bodies == ["p1", "p2"]
    assert harness.claim(10, priorities=(7,)).why == "empty"


def test_filter_by_partition(harness: StoreHarness) -> None:
    for name in "abc":
        harness.push(name, partition=name)
    assert sorted(harness.claim(10, partitions=("c", "a", "c", "nowhere")).bodies) == ["a", "c"]
    assert harness.claim(10, partitions=("nowhere",)).why == "empty"
    assert harness.claim().bodies == ["b"]


def test_claim_by_namespace_and_task_takes_from_several_queues(harness: StoreHarness) -> None:
    for name, ns, task in (("one", "shop", "mail"), ("two", "shop", "bill"), ("three", "bank", "mail")):
        harness.do(c.ConfigureQueue(queue=name, namespace=ns, task=task))
        harness.push(name, queue=name)
        harness.advance(1)
    assert harness.claim(queue=None, namespace="bank", task="mail").bodies == ["three"]
    assert harness.claim(queue=None, namespace="shop").bodies == ["one"]
    assert harness.claim(queue=None, namespace="shop").bodies == ["two"]
    assert harness.claim(queue=None, namespace="shop").why == "empty"
    assert harness.claim(queue=None, task="none").why == "empty"


def test_namespace_claims_are_fair_over_queues(harness: StoreHarness) -> None:
    for name in ("one", "two"):
        harness.do(c.ConfigureQueue(queue=name, namespace="shop"))
        harness.number(4, queue=name)
    queues = []
    for _ in range(8):
        harness.advance(0.001)
        queues.append(harness.claim(1, queue=None, namespace="shop").claimed.grants[0].queue)
    assert Counter(queues[:4]) == {"one": 2, "two": 2}


def test_unknown_queue_is_refused_or_made(harness: StoreHarness) -> None:
    with pytest.raises(UnknownQueue):
        harness.claim(queue="nowhere")
    assert harness.store.ask(q.ListQueues()) == []
    assert harness.claim(queue="made", create=QueuePolicy(retry_limit=1)).why == "empty"
    assert harness.store.ask(q.GetQueue(queue="made")).policy["retry_limit"] == 1


def test_groups_do_not_see_each_other(harness: StoreHarness) -> None:
    harness.number(3)
    a, b = harness.claim(group="a"), harness.claim(group="b")
    assert a.bodies == b.bodies == ["0", "1", "2"]
    harness.ack(*a.deliveries)
    assert counts(harness.group("a")) == {"acked": 3}
    assert counts(harness.group("b")) == {"held": 3}


def test_auto_ack_holds_nothing(harness: StoreHarness) -> None:
    harness.number(3)
    hand = harness.claim(2, auto_ack=True)
    assert (hand.bodies, hand.lease_id) == (["0", "1"], "")
    assert counts(harness.group()) == {"acked": 2, "unread": 1}
    assert harness.store.ask(q.ListLeases(queue="q", live_only=False)) == []
    assert harness.claim(5, auto_ack=True).bodies == ["2"]
    assert harness.claim(5, auto_ack=True).why == "empty"


def test_auto_ack_takes_a_returned_message_from_the_middle(harness: StoreHarness) -> None:
    harness.number(5)
    hand = harness.claim()
    harness.retry(*hand.deliveries[1:4])
    got = harness.claim(2, auto_ack=True)
    assert [(d.body, d.attempt) for d in got.deliveries] == [("1", 2), ("2", 2)]
    assert counts(harness.group()) == {"acked": 2, "held": 3}
    assert harness.claim(5).bodies == ["3"]


def test_auto_ack_leaves_a_waiting_retry_claimable(harness: StoreHarness) -> None:
    harness.number(3)
    harness.retry(harness.take(), delay=5)
    assert harness.claim(auto_ack=True).bodies == ["1", "2"]
    harness.advance(5)
    assert harness.claim(auto_ack=True).bodies == ["0"]


def test_ten_thousand_messages_are_one_span(harness: StoreHarness) -> None:
    harness.push(*("x" for _ in range(10_000)))
    hand = harness.do(c.Claim(queue="q", most=1_000_000))
    assert [(g.lo, g.hi) for g in hand.grants] == [(0, 10_000)]
    assert harness.ack(c.ByLease(hand.lease_id)) == ["acked"]
    assert counts(harness.group()) == {"acked": 10_000}


LARGE = "x" * 100_000
SMALL = "y" * 1_000


@pytest.mark.parametrize("auto_ack", [False, True], ids=["leased", "auto_ack"])
def test_claim_stops_when_it_has_so_many_bytes(harness: StoreHarness, auto_ack: bool) -> None:
    harness.push(*(f"{LARGE}{n}" for n in range(5)))
    harness.push(f"{LARGE}5", priority=1)
    harness.push(*(f"{SMALL}{n}" for n in range(20)), priority=2)

    def numbers(most_bytes: int, most: int = 9) -> list[str]:
        hand = harness.claim(most, most_bytes=most_bytes, auto_ack=auto_ack)
        return [body.strip("xy") for body in hand.bodies]

    assert numbers(1) == ["0"]
    assert numbers(1, most=1) == ["1"]
    assert numbers(250_000) == ["2", "3"]
    assert numbers(205_000) == ["4", "5", "0", "1", "2", "3"]
    assert numbers(250_000, most=30) == [str(n) for n in range(4, 20)]
    assert harness.store.audit() == []


def test_bytes_of_what_came_back_count_as_well(harness: StoreHarness) -> None:
    harness.push(*(f"{LARGE}{n}" for n in range(4)))
    harness.release(*harness.claim(4).deliveries)
    harness.release(*harness.claim(1).deliveries)
    assert len(harness.claim(9, most_bytes=350_000)) == 3
    assert [body.strip("x") for body in harness.claim(9, most_bytes=350_000).bodies] == ["3"]
    assert harness.store.audit() == []
