"""Who keeps whom out, and what an empty claim says about it."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core.limits import MICROS
from tests.contract.support import Desk


@pytest.fixture(autouse=True)
def two_partitions(desk: Desk) -> None:
    for name in ("p1", "p2"):
        desk.push("0", "1", "2", "3", partition=name)


def test_none_shares_a_lane(desk: Desk) -> None:
    first, second = desk.claim(2, partitions=("p1",)), desk.claim(2, partitions=("p1",))
    assert (first.bodies, second.bodies) == (["0", "1"], ["2", "3"])


def test_partition_keeps_everybody_out_of_the_partition_only(desk: Desk) -> None:
    mine = desk.claim(1, exclusivity="partition", partitions=("p1",), seconds=20)
    for exclusivity in ("none", "partition"):
        other = desk.claim(1, exclusivity=exclusivity, partitions=("p1",))
        assert (other.why, other.claimed.until) == ("locked", mine.claimed.deadline)
    assert desk.claim(9, exclusivity="partition").deliveries[0].partition == "p2"
    assert desk.claim(9, exclusivity="partition").why == "locked"


def test_partition_covers_all_its_priorities(desk: Desk) -> None:
    desk.push("low", partition="p1", priority=3)
    desk.claim(1, exclusivity="partition", partitions=("p1",))
    assert desk.claim(9, exclusivity="none", priorities=(3,)).why == "locked"


def test_partition_needs_the_partition_free(desk: Desk) -> None:
    pool = desk.claim(1, exclusivity="none", partitions=("p1",))
    assert desk.claim(1, exclusivity="partition", partitions=("p1",)).why == "locked"
    desk.ack(*pool.deliveries)
    assert desk.claim(1, exclusivity="partition", partitions=("p1",)).bodies == ["1"]


def test_queue_needs_the_queue_free_and_keeps_it(desk: Desk) -> None:
    pool = desk.claim(1, exclusivity="none", seconds=20)
    blocked = desk.claim(1, exclusivity="queue")
    assert (blocked.why, blocked.claimed.until) == ("locked", pool.claimed.deadline)
    desk.ack(*pool.deliveries)
    mine = desk.claim(1, exclusivity="queue", seconds=15)
    for exclusivity in ("none", "partition", "queue"):
        other = desk.claim(1, exclusivity=exclusivity)
        assert (other.why, other.claimed.until) == ("locked", mine.claimed.deadline)
    desk.ack(*mine.deliveries)
    assert len(desk.claim(9)) == 6


def test_whoever_is_shut_out_hears_when_the_last_of_them_has_run_out(desk: Desk) -> None:
    desk.claim(1, exclusivity="none", seconds=20)
    long = desk.claim(1, exclusivity="none", seconds=300)
    middle = desk.claim(1, exclusivity="none", seconds=60)
    assert desk.claim(1, exclusivity="queue").claimed.until == long.claimed.deadline
    desk.ack(*long.deliveries)
    assert desk.claim(1, exclusivity="queue").claimed.until == middle.claimed.deadline
    desk.advance(60)
    assert len(desk.claim(1, exclusivity="queue")) == 1


def test_a_delayed_retry_is_no_end_of_a_lock(desk: Desk) -> None:
    desk.retry(desk.take(), delay=5)
    mine = desk.claim(1, exclusivity="queue", seconds=100)
    for exclusivity in ("none", "partition", "queue"):
        other = desk.claim(1, exclusivity=exclusivity)
        assert (other.why, other.claimed.until) == ("locked", mine.claimed.deadline)


def test_the_queues_policy_is_the_default(desk: Desk) -> None:
    desk.configure(exclusivity="queue")
    desk.claim(1)
    assert desk.claim(1).why == "locked"


@pytest.mark.parametrize("exclusivity", ["partition", "queue"])
def test_an_owner_never_excludes_itself(desk: Desk, exclusivity: str) -> None:
    first = desk.claim(1, exclusivity=exclusivity, owner="me")
    more = desk.claim(9, exclusivity=exclusivity, owner="me")
    assert len(first) + len(more) == 8
    assert desk.claim(9, exclusivity="none", owner="you").why == "locked"
    done = desk.claim(9, exclusivity=exclusivity, owner="me")
    assert done.why == "empty"


def test_an_owner_may_mix_pool_and_exclusive(desk: Desk) -> None:
    desk.claim(1, exclusivity="none", owner="me", partitions=("p1",))
    assert desk.claim(1, exclusivity="partition", owner="me", partitions=("p1",)).bodies == ["1"]
    assert desk.claim(1, exclusivity="none", owner="you", partitions=("p1",)).why == "locked"


@pytest.mark.parametrize("exclusivity", ["partition", "queue"])
def test_expiry_opens_the_door(desk: Desk, exclusivity: str) -> None:
    desk.claim(1, exclusivity=exclusivity, partitions=("p1",), seconds=20)
    desk.advance(20)
    assert desk.claim(1, exclusivity=exclusivity, partitions=("p1",)).bodies == ["0"]


def test_groups_do_not_exclude_each_other(desk: Desk) -> None:
    desk.claim(1, exclusivity="queue", group="a")
    assert len(desk.claim(9, exclusivity="queue", group="b")) == 8


def test_auto_ack_respects_a_holder(desk: Desk) -> None:
    desk.claim(1, exclusivity="queue", owner="me")
    assert desk.claim(1, auto_ack=True).why == "locked"
    assert len(desk.claim(1, auto_ack=True, owner="me", exclusivity="queue")) == 1


def test_a_drained_partition_is_empty_though_another_is_locked(desk: Desk) -> None:
    desk.ack(*desk.claim(9, partitions=("p1",)).deliveries)
    desk.claim(1, exclusivity="partition", partitions=("p2",))
    assert desk.claim(partitions=("p1",)).why == "empty"
    assert desk.claim(partitions=("unheard of",)).why == "empty"


def test_an_empty_claim_says_paused(desk: Desk) -> None:
    desk.do(c.PauseQueue(queue="q"))
    assert desk.claim().why == "paused"
    desk.do(c.PauseQueue(queue="q", paused=False))
    assert len(desk.claim(9)) == 8


def test_an_empty_claim_says_delayed_until(desk: Desk) -> None:
    hand = desk.claim(9)
    desk.ack(*hand.deliveries[1:])
    desk.retry(hand.deliveries[0], delay=30)
    empty = desk.claim()
    assert (empty.why, empty.claimed.until) == ("delayed", desk.clock.now() + 30 * MICROS)
    named = desk.claim(partitions=(hand.deliveries[0].partition,))
    assert (named.why, named.claimed.until) == ("delayed", desk.clock.now() + 30 * MICROS)


def test_an_empty_claim_says_empty(desk: Desk) -> None:
    desk.ack(*desk.claim(9).deliveries)
    empty = desk.claim()
    assert (empty.why, empty.claimed.until) == ("empty", None)
