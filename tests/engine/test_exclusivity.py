"""Who keeps whom out, and what an empty claim says about it."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core.validation import MICROS
from tests.engine.store_harness import StoreHarness


@pytest.fixture(autouse=True)
def two_partitions(harness: StoreHarness) -> None:
    for name in ("p1", "p2"):
        harness.push("0", "1", "2", "3", partition=name)


def test_exclusivity_none_shares_a_lane(harness: StoreHarness) -> None:
    first, second = harness.claim(2, partitions=("p1",)), harness.claim(2, partitions=("p1",))
    assert (first.bodies, second.bodies) == (["0", "1"], ["2", "3"])


def test_exclusive_partition_blocks_that_partition_only(harness: StoreHarness) -> None:
    mine = harness.claim(1, exclusivity="partition", partitions=("p1",), seconds=20)
    for exclusivity in ("none", "partition"):
        other = harness.claim(1, exclusivity=exclusivity, partitions=("p1",))
        assert (other.why, other.claimed.until) == ("locked", mine.claimed.deadline)
    assert harness.claim(9, exclusivity="partition").deliveries[0].partition == "p2"
    assert harness.claim(9, exclusivity="partition").why == "locked"


def test_partition_covers_all_its_priorities(harness: StoreHarness) -> None:
    harness.push("low", partition="p1", priority=3)
    harness.claim(1, exclusivity="partition", partitions=("p1",))
    assert harness.claim(9, exclusivity="none", priorities=(3,)).why == "locked"


def test_partition_needs_the_partition_free(harness: StoreHarness) -> None:
    pool = harness.claim(1, exclusivity="none", partitions=("p1",))
    assert harness.claim(1, exclusivity="partition", partitions=("p1",)).why == "locked"
    harness.ack(*pool.deliveries)
    assert harness.claim(1, exclusivity="partition", partitions=("p1",)).bodies == ["1"]


def test_queue_needs_the_queue_free_and_keeps_it(harness: StoreHarness) -> None:
    pool = harness.claim(1, exclusivity="none", seconds=20)
    blocked = harness.claim(1, exclusivity="queue")
    assert (blocked.why, blocked.claimed.until) == ("locked", pool.claimed.deadline)
    harness.ack(*pool.deliveries)
    mine = harness.claim(1, exclusivity="queue", seconds=15)
    for exclusivity in ("none", "partition", "queue"):
        other = harness.claim(1, exclusivity=exclusivity)
        assert (other.why, other.claimed.until) == ("locked", mine.claimed.deadline)
    harness.ack(*mine.deliveries)
    assert len(harness.claim(9)) == 6


def test_blocked_claim_wakes_when_last_foreign_lease_expires(harness: StoreHarness) -> None:
    harness.claim(1, exclusivity="none", seconds=20)
    long = harness.claim(1, exclusivity="none", seconds=300)
    middle = harness.claim(1, exclusivity="none", seconds=60)
    assert harness.claim(1, exclusivity="queue").claimed.until == long.claimed.deadline
    harness.ack(*long.deliveries)
    assert harness.claim(1, exclusivity="queue").claimed.until == middle.claimed.deadline
    harness.advance(60)
    assert len(harness.claim(1, exclusivity="queue")) == 1


def test_delayed_retry_is_no_end_of_a_lock(harness: StoreHarness) -> None:
    harness.retry(harness.take(), delay=5)
    mine = harness.claim(1, exclusivity="queue", seconds=100)
    for exclusivity in ("none", "partition", "queue"):
        other = harness.claim(1, exclusivity=exclusivity)
        assert (other.why, other.claimed.until) == ("locked", mine.claimed.deadline)


def test_queues_policy_is_the_default(harness: StoreHarness) -> None:
    harness.configure(exclusivity="queue")
    harness.claim(1)
    assert harness.claim(1).why == "locked"


@pytest.mark.parametrize("exclusivity", ["partition", "queue"])
def test_owner_never_excludes_itself(harness: StoreHarness, exclusivity: str) -> None:
    first = harness.claim(1, exclusivity=exclusivity, owner="me")
    more = harness.claim(9, exclusivity=exclusivity, owner="me")
    assert len(first) + len(more) == 8
    assert harness.claim(9, exclusivity="none", owner="you").why == "locked"
    done = harness.claim(9, exclusivity=exclusivity, owner="me")
    assert done.why == "empty"


def test_owner_may_mix_pool_and_exclusive(harness: StoreHarness) -> None:
    harness.claim(1, exclusivity="none", owner="me", partitions=("p1",))
    assert harness.claim(1, exclusivity="partition", owner="me", partitions=("p1",)).bodies == ["1"]
    assert harness.claim(1, exclusivity="none", owner="you", partitions=("p1",)).why == "locked"


@pytest.mark.parametrize("exclusivity", ["partition", "queue"])
def test_expiry_opens_the_door(harness: StoreHarness, exclusivity: str) -> None:
    harness.claim(1, exclusivity=exclusivity, partitions=("p1",), seconds=20)
    harness.advance(20)
    assert harness.claim(1, exclusivity=exclusivity, partitions=("p1",)).bodies == ["0"]


def test_groups_do_not_exclude_each_other(harness: StoreHarness) -> None:
    harness.claim(1, exclusivity="queue", group="a")
    assert len(harness.claim(9, exclusivity="queue", group="b")) == 8


def test_auto_ack_respects_a_holder(harness: StoreHarness) -> None:
    harness.claim(1, exclusivity="queue", owner="me")
    assert harness.claim(1, auto_ack=True).why == "locked"
    assert len(harness.claim(1, auto_ack=True, owner="me", exclusivity="queue")) == 1


def test_drained_partition_is_empty_though_another_is_locked(harness: StoreHarness) -> None:
    harness.ack(*harness.claim(9, partitions=("p1",)).deliveries)
    harness.claim(1, exclusivity="partition", partitions=("p2",))
    assert harness.claim(partitions=("p1",)).why == "empty"
    assert harness.claim(partitions=("unheard of",)).why == "empty"


def test_empty_claim_says_paused(harness: StoreHarness) -> None:
    harness.do(c.PauseQueue(queue="q"))
    assert harness.claim().why == "paused"
    harness.do(c.PauseQueue(queue="q", paused=False))
    assert len(harness.claim(9)) == 8


def test_empty_claim_says_delayed_until(harness: StoreHarness) -> None:
    hand = harness.claim(9)
    harness.ack(*hand.deliveries[1:])
    harness.retry(hand.deliveries[0], delay=30)
    empty = harness.claim()
    assert (empty.why, empty.claimed.until) == ("delayed", harness.clock.now() + 30 * MICROS)
    named = harness.claim(partitions=(hand.deliveries[0].partition,))
    assert (named.why, named.claimed.until) == ("delayed", harness.clock.now() + 30 * MICROS)


def test_empty_claim_says_empty(harness: StoreHarness) -> None:
    harness.ack(*harness.claim(9).deliveries)
    empty = harness.claim()
    assert (empty.why, empty.claimed.until) == ("empty", None)
