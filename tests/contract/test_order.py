"""Order in a lane: strict waits for what is before, relaxed goes on."""

from __future__ import annotations

import pytest

from tests.contract.support import Desk


@pytest.fixture(autouse=True)
def five(desk: Desk) -> None:
    desk.number(5)


def test_strict_gives_a_returned_message_before_fresh_ones(desk: Desk) -> None:
    hand = desk.claim(2, order="strict")
    desk.retry(hand.deliveries[0])
    desk.ack(hand.deliveries[1])
    assert desk.claim(9, order="strict").bodies == ["0", "2", "3", "4"]


def test_a_delayed_retry_closes_a_strict_lane_for_that_group_only(desk: Desk) -> None:
    hand = desk.claim(2, order="strict", group="a")
    desk.ack(hand.deliveries[1])
    desk.retry(hand.deliveries[0], delay=30)
    assert desk.claim(9, order="strict", group="a").why == "delayed"
    assert desk.claim(9, order="strict", group="b").bodies == ["0", "1", "2", "3", "4"]
    desk.advance(30)
    assert desk.claim(9, order="strict", group="a").bodies == ["0", "2", "3", "4"]


def test_strict_stops_in_the_middle_before_a_delayed_one(desk: Desk) -> None:
    hand = desk.claim(4, order="strict")
    desk.retry(hand.deliveries[2], delay=30)
    desk.retry(hand.deliveries[0], hand.deliveries[1], hand.deliveries[3])
    assert desk.claim(9, order="strict").bodies == ["0", "1"]


def test_strict_waits_for_another_owner(desk: Desk) -> None:
    desk.claim(2, order="strict", owner="a")
    blocked = desk.claim(9, order="strict", owner="b")
    assert (blocked.why, blocked.claimed.until is not None) == ("locked", True)
    assert desk.claim(2, order="strict", owner="a").bodies == ["2", "3"]


def test_strict_goes_on_when_what_is_before_is_dead(desk: Desk) -> None:
    hand = desk.claim(2, order="strict")
    desk.reject(hand.deliveries[0])
    desk.ack(hand.deliveries[1])
    assert desk.claim(9, order="strict").bodies == ["2", "3", "4"]


def test_relaxed_goes_on_past_a_delayed_retry(desk: Desk) -> None:
    desk.retry(desk.claim(1).deliveries[0], delay=30)
    assert desk.claim(2).bodies == ["1", "2"]
    desk.advance(29)
    assert desk.claim(1).bodies == ["3"]
    desk.advance(1)
    assert desk.claim(9).bodies == ["0", "1", "2", "4"]


def test_relaxed_takes_due_retries_first(desk: Desk) -> None:
    hand = desk.claim(3)
    desk.retry(hand.deliveries[2])
    desk.release(hand.deliveries[1])
    assert desk.claim(9).bodies == ["1", "2", "3", "4"]


def test_the_queues_order_applies_to_its_own_exclusivity(desk: Desk) -> None:
    desk.configure(exclusivity="none", order="strict")
    desk.claim(1)
    assert desk.claim(1).why == "locked"
    assert desk.claim(1, order="relaxed").bodies == ["1"]


def test_exclusive_claims_are_strict_and_pools_relaxed_by_default(desk: Desk) -> None:
    hand = desk.claim(1, exclusivity="partition")
    desk.retry(*hand.deliveries, delay=30)
    assert desk.claim(9, exclusivity="partition").why == "delayed"
    assert desk.claim(9, exclusivity="none", partitions=("Default",)).bodies == ["1", "2", "3", "4"]


def test_a_message_returned_by_expiry_goes_to_the_front(desk: Desk) -> None:
    desk.claim(2, order="strict", seconds=5)
    desk.advance(5)
    assert desk.claim(3, order="strict").bodies == ["0", "1", "2"]
