"""Order in a lane: strict waits for what is before, relaxed goes on."""

from __future__ import annotations

import pytest

from tests.engine.store_harness import StoreHarness


@pytest.fixture(autouse=True)
def five(harness: StoreHarness) -> None:
    harness.number(5)


def test_strict_gives_a_returned_message_before_fresh_ones(harness: StoreHarness) -> None:
    hand = harness.claim(2, order="strict")
    harness.retry(hand.deliveries[0])
    harness.ack(hand.deliveries[1])
    assert harness.claim(9, order="strict").bodies == ["0", "2", "3", "4"]


def test_delayed_retry_closes_strict_lane_for_its_group(harness: StoreHarness) -> None:
    hand = harness.claim(2, order="strict", group="a")
    harness.ack(hand.deliveries[1])
    harness.retry(hand.deliveries[0], delay=30)
    assert harness.claim(9, order="strict", group="a").why == "delayed"
    assert harness.claim(9, order="strict", group="b").bodies == ["0", "1", "2", "3", "4"]
    harness.advance(30)
    assert harness.claim(9, order="strict", group="a").bodies == ["0", "2", "3", "4"]


def test_strict_stops_in_the_middle_before_a_delayed_one(harness: StoreHarness) -> None:
    hand = harness.claim(4, order="strict")
    harness.retry(hand.deliveries[2], delay=30)
    harness.retry(hand.deliveries[0], hand.deliveries[1], hand.deliveries[3])
    assert harness.claim(9, order="strict").bodies == ["0", "1"]


def test_strict_waits_for_another_owner(harness: StoreHarness) -> None:
    harness.claim(2, order="strict", owner="a")
    blocked = harness.claim(9, order="strict", owner="b")
    assert (blocked.why, blocked.claimed.until is not None) == ("locked", True)
    assert harness.claim(2, order="strict", owner="a").bodies == ["2", "3"]


def test_strict_goes_on_when_what_is_before_is_dead(harness: StoreHarness) -> None:
    hand = harness.claim(2, order="strict")
    harness.reject(hand.deliveries[0])
    harness.ack(hand.deliveries[1])
    assert harness.claim(9, order="strict").bodies == ["2", "3", "4"]


def test_relaxed_goes_on_past_a_delayed_retry(harness: StoreHarness) -> None:
    harness.retry(harness.claim(1).deliveries[0], delay=30)
    assert harness.claim(2).bodies == ["1", "2"]
    harness.advance(29)
    assert harness.claim(1).bodies == ["3"]
    harness.advance(1)
    assert harness.claim(9).bodies == ["0", "1", "2", "4"]


def test_relaxed_takes_due_retries_first(harness: StoreHarness) -> None:
    hand = harness.claim(3)
    harness.retry(hand.deliveries[2])
    harness.release(hand.deliveries[1])
    assert harness.claim(9).bodies == ["1", "2", "3", "4"]


def test_queues_order_applies_to_its_own_exclusivity(harness: StoreHarness) -> None:
    harness.configure(exclusivity="none", order="strict")
    harness.claim(1)
    assert harness.claim(1).why == "locked"
    assert harness.claim(1, order="relaxed").bodies == ["1"]


def test_exclusive_claims_default_strict_and_pools_relaxed(harness: StoreHarness) -> None:
    hand = harness.claim(1, exclusivity="partition")
    harness.retry(*hand.deliveries, delay=30)
    assert harness.claim(9, exclusivity="partition").why == "delayed"
    assert harness.claim(9, exclusivity="none", partitions=("Default",)).bodies == ["1", "2", "3", "4"]


def test_message_returned_by_expiry_goes_to_the_front(harness: StoreHarness) -> None:
    harness.claim(2, order="strict", seconds=5)
    harness.advance(5)
    assert harness.claim(3, order="strict").bodies == ["0", "1", "2"]
