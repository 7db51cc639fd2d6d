"""Claim: which lanes, how many, in what order and how fairly."""

from __future__ import annotations

from collections import Counter

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import UnknownQueue
from ackwise.core.limits import MICROS
from ackwise.core.policy import QueuePolicy
from tests.contract.support import Desk, counts


def test_one_lane_up_to_the_maximum(desk: Desk) -> None:
    desk.number(5)
    first, second = desk.claim(3), desk.claim(3)
    assert (first.bodies, second.bodies) == (["0", "1", "2"], ["3", "4"])
    assert desk.claim().why == "empty"
    assert first.lease_id != second.lease_id
    assert second.claimed.lease_no > first.claimed.lease_no


def test_the_first_delivery_is_attempt_one_without_failures(desk: Desk) -> None:
    desk.push("a")
    got = desk.take()
    assert (got.attempt, got.failures) == (1, 0)


def test_the_lease_time_is_the_claims_or_the_queues(desk: Desk) -> None:
    desk.configure(lease_seconds=45)
    desk.push("a", "b")
    now = desk.clock.now()
    assert desk.claim(1).claimed.deadline == now + 45 * MICROS
    assert desk.claim(1, seconds=7).claimed.deadline == now + 7 * MICROS


def test_many_lanes_under_one_lease(desk: Desk) -> None:
    for name in "abc":
        desk.push(f"{name}1", f"{name}2", partition=name)
    hand = desk.claim(5)
    assert len(hand) == 5
    assert len({d.lane for d in hand.deliveries}) == 3
    assert {d.lease_id for d in hand.deliveries} == {hand.lease_id}
    (lease,) = desk.store.list_leases(q.ListLeases(queue="q"))
    assert (lease.granted, lease.held) == (5, 5)


def test_a_bound_on_the_number_of_partitions(desk: Desk) -> None:
    for name in "abc":
        desk.push("1", "2", partition=name)
    assert {d.partition for d in desk.claim(10, most_partitions=2).deliveries} == {"a", "b"}


def test_a_wildcard_goes_round_the_lanes(desk: Desk) -> None:
    for name in "abcd":
        desk.push(*(str(i) for i in range(6)), partition=name)
    served: Counter[str] = Counter()
    for turn in range(1, 25):
        desk.advance(0.001)
        served[desk.take().partition] += 1
        assert max(served.values()) - min(served[name] for name in "abcd") <= 1, f"unfair after {turn}"
    assert served == dict.fromkeys("abcd", 6)


def test_a_busy_lane_does_not_starve_a_quiet_one(desk: Desk) -> None:
    desk.push(*(str(i) for i in range(100)), partition="busy")
    desk.claim(10)
    desk.advance(0.001)
    desk.push("quiet", partition="quiet")
    seen = []
    for _ in range(3):
        desk.advance(0.001)
        desk.push("more", partition="busy")
        seen += [d.partition for d in desk.claim(1).deliveries]
    assert "quiet" in seen


def test_lower_numbers_first(desk: Desk) -> None:
    desk.push("p9", priority=9)
    desk.push("p0")
    desk.push("p5", priority=5, partition="other")
    assert desk.claim(10).bodies == ["p0", "p5", "p9"]


def test_priorities_come_before_waiting_time(desk: Desk) -> None:
    desk.push("old and low", priority=1)
    desk.advance(100)
    desk.push("new and high", partition="z")
    assert desk.claim(1).bodies == ["new and high"]


def test_a_filter_by_priority(desk: Desk) -> None:
    for priority in (0, 1, 2):
        desk.push(f"p{priority}", priority=priority)
    assert desk.claim(10, priorities=(1, 2)).bodies == ["p1", "p2"]
    assert desk.claim(10, priorities=(7,)).why == "empty"


def test_a_filter_by_partition(desk: Desk) -> None:
    for name in "abc":
        desk.push(name, partition=name)
    assert sorted(desk.claim(10, partitions=("c", "a", "c", "nowhere")).bodies) == ["a", "c"]
    assert desk.claim(10, partitions=("nowhere",)).why == "empty"
    assert desk.claim().bodies == ["b"]


def test_several_queues_by_namespace_and_task(desk: Desk) -> None:
    for name, ns, task in (("one", "shop", "mail"), ("two", "shop", "bill"), ("three", "bank", "mail")):
        desk.do(c.ConfigureQueue(queue=name, namespace=ns, task=task))
        desk.push(name, queue=name)
        desk.advance(1)
    assert desk.claim(queue=None, namespace="bank", task="mail").bodies == ["three"]
    assert desk.claim(queue=None, namespace="shop").bodies == ["one"]
    assert desk.claim(queue=None, namespace="shop").bodies == ["two"]
    assert desk.claim(queue=None, namespace="shop").why == "empty"
    assert desk.claim(queue=None, task="none").why == "empty"


def test_namespace_claims_are_fair_over_queues(desk: Desk) -> None:
    for name in ("one", "two"):
        desk.do(c.ConfigureQueue(queue=name, namespace="shop"))
        desk.number(4, queue=name)
    queues = []
    for _ in range(8):
        desk.advance(0.001)
        queues.append(desk.claim(1, queue=None, namespace="shop").claimed.grants[0].queue)
    assert Counter(queues[:4]) == {"one": 2, "two": 2}


def test_an_unknown_queue_is_refused_or_made(desk: Desk) -> None:
    with pytest.raises(UnknownQueue):
        desk.claim(queue="nowhere")
    assert desk.store.list_queues(q.ListQueues()) == []
    assert desk.claim(queue="made", create=QueuePolicy(retry_limit=1)).why == "empty"
    assert desk.store.get_queue(q.GetQueue(queue="made")).policy["retry_limit"] == 1


def test_groups_do_not_see_each_other(desk: Desk) -> None:
    desk.number(3)
    a, b = desk.claim(group="a"), desk.claim(group="b")
    assert a.bodies == b.bodies == ["0", "1", "2"]
    desk.ack(*a.deliveries)
    assert counts(desk.group("a")) == {"acked": 3}
    assert counts(desk.group("b")) == {"held": 3}


def test_auto_ack_holds_nothing(desk: Desk) -> None:
    desk.number(3)
    hand = desk.claim(2, auto_ack=True)
    assert (hand.bodies, hand.lease_id) == (["0", "1"], "")
    assert counts(desk.group()) == {"acked": 2, "unread": 1}
    assert desk.store.list_leases(q.ListLeases(queue="q", live_only=False)) == []
    assert desk.claim(5, auto_ack=True).bodies == ["2"]
    assert desk.claim(5, auto_ack=True).why == "empty"


def test_auto_ack_takes_a_returned_message_from_the_middle(desk: Desk) -> None:
    desk.number(5)
    hand = desk.claim()
    desk.retry(*hand.deliveries[1:4])
    got = desk.claim(2, auto_ack=True)
    assert [(d.body, d.attempt) for d in got.deliveries] == [("1", 2), ("2", 2)]
    assert counts(desk.group()) == {"acked": 2, "held": 3}
    assert desk.claim(5).bodies == ["3"]


def test_auto_ack_leaves_a_waiting_retry_claimable(desk: Desk) -> None:
    desk.number(3)
    desk.retry(desk.take(), delay=5)
    assert desk.claim(auto_ack=True).bodies == ["1", "2"]
    desk.advance(5)
    assert desk.claim(auto_ack=True).bodies == ["0"]


def test_ten_thousand_messages_are_one_span(desk: Desk) -> None:
    desk.push(*("x" for _ in range(10_000)))
    hand = desk.do(c.Claim(queue="q", most=1_000_000))
    assert [(g.lo, g.hi) for g in hand.grants] == [(0, 10_000)]
    assert desk.ack(c.ByLease(hand.lease_id)) == ["acked"]
    assert counts(desk.group()) == {"acked": 10_000}


LARGE = "x" * 100_000
SMALL = "y" * 1_000


@pytest.mark.parametrize("auto_ack", [False, True], ids=["leased", "auto_ack"])
def test_a_claim_stops_when_it_has_so_many_bytes(desk: Desk, auto_ack: bool) -> None:
    desk.push(*(f"{LARGE}{n}" for n in range(5)))
    desk.push(f"{LARGE}5", priority=1)
    desk.push(*(f"{SMALL}{n}" for n in range(20)), priority=2)

    def numbers(most_bytes: int, most: int = 9) -> list[str]:
        hand = desk.claim(most, most_bytes=most_bytes, auto_ack=auto_ack)
        return [body.strip("xy") for body in hand.bodies]

    assert numbers(1) == ["0"]
    assert numbers(1, most=1) == ["1"]
    assert numbers(250_000) == ["2", "3"]
    assert numbers(205_000) == ["4", "5", "0", "1", "2", "3"]
    assert numbers(250_000, most=30) == [str(n) for n in range(4, 20)]
    assert desk.store.audit() == []


def test_bytes_of_what_came_back_count_as_well(desk: Desk) -> None:
    desk.push(*(f"{LARGE}{n}" for n in range(4)))
    desk.release(*desk.claim(4).deliveries)
    desk.release(*desk.claim(1).deliveries)
    assert len(desk.claim(9, most_bytes=350_000)) == 3
    assert [body.strip("x") for body in desk.claim(9, most_bytes=350_000).bodies] == ["3"]
    assert desk.store.audit() == []
