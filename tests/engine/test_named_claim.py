"""Claims of named messages: they take what they name, and what they bypass stays available."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, UnknownGroup
from ackwise.core.lane_range import LaneRange
from ackwise.core.rows import AvailablePage
from ackwise.engine.reads import available as available_reads
from ackwise.store.database_store import DatabaseStore
from tests.engine.store_harness import Hand, StoreHarness, counts

FREE: dict[str, Any] = {"exclusivity": "none", "order": "relaxed"}


def lane_of(harness: StoreHarness) -> int:
    return harness.store.ask(q.ListLanes(queue="q"))[0].lane


def named(harness: StoreHarness, *seqs: int, most: int = 100, **rest: Any) -> Hand:
    lane = lane_of(harness)
    only = tuple(LaneRange(lane, seq, seq + 1) for seq in seqs)  # type: ignore[arg-type]
    return harness.claim(most, only=only, **{**FREE, **rest})


def available(harness: StoreHarness, **rest: Any) -> AvailablePage:
    return harness.store.ask(q.ListAvailable(queue="q", **rest))


def seqs(page: AvailablePage) -> list[int]:
    return [seq for found in page.ranges for seq in range(found.lo, found.hi)]


def test_named_claim_takes_only_what_it_names(harness: StoreHarness) -> None:
    harness.number(10)
    hand = named(harness, 2, 3, 7)
    assert [(d.body, d.attempt) for d in hand.deliveries] == [("2", 1), ("3", 1), ("7", 1)]
    assert hand.claimed.gone == []
    assert counts(harness.group()) == {"held": 8, "unread": 2}
    assert harness.states() == [*["ready"] * 2, *["leased"] * 2, *["ready"] * 3, "leased", *["ready"] * 2]
    rest = harness.claim(100, **FREE)
    assert [(d.body, d.attempt, d.failures) for d in rest.deliveries] == [(str(n), 1, 0) for n in (0, 1, 4, 5, 6, 8, 9)]


def test_bypassed_messages_are_named_and_claimed_later(harness: StoreHarness) -> None:
    harness.number(10)
    harness.ack(*named(harness, 9).deliveries)
    second = named(harness, 1, 2, 5, 8)
    assert second.bodies == ["1", "2", "5", "8"]
    harness.ack(*second.deliveries)
    third = named(harness, 0, 1, 3, 4)
    assert third.bodies == ["0", "3", "4"]
    lane = lane_of(harness)
    assert third.claimed.gone == [(lane, 1, 2)]
    harness.ack(*third.deliveries)
    assert harness.claim(100, **FREE).bodies == ["6", "7"]


def test_leased_and_delayed_messages_are_gone(harness: StoreHarness) -> None:
    harness.number(4)
    first = named(harness, 0, 1)
    harness.retry(first.deliveries[0], delay=10)
    hand = named(harness, 0, 1, 3)
    assert hand.bodies == ["3"]
    assert hand.claimed.gone == [(lane_of(harness), 0, 2)]
    harness.advance(10)
    again = named(harness, 0)
    assert [(d.attempt, d.failures) for d in again.deliveries] == [(2, 1)]


def test_named_claim_stops_at_its_room_and_its_bytes(harness: StoreHarness) -> None:
    harness.push(*(str(n).ljust(1000, "x") for n in range(10)))
    assert len(named(harness, *range(0, 10, 2), most=2)) == 2
    hand = named(harness, 4, 6, 8, most_bytes=2600)
    assert [d.seq for d in hand.deliveries] == [4, 6]
    assert hand.claimed.gone == []
    assert [d.seq for d in named(harness, 8).deliveries] == [8]


def test_strict_lane_gives_named_messages_only_in_order(harness: StoreHarness) -> None:
    harness.configure(order="strict")
    harness.number(5)
    assert named(harness, 1, 2, order=None).bodies == []
    assert counts(harness.group()) == {"unread": 5}
    assert named(harness, 0, 1, 3, order=None).bodies == ["0", "1"]
    assert named(harness, 2, order=None).bodies == []


def test_exclusive_holder_keeps_named_claims_out(harness: StoreHarness) -> None:
    harness.number(3)
    harness.claim(1, exclusivity="partition", owner="other")
    hand = named(harness, 1)
    assert (hand.bodies, hand.why, hand.claimed.gone) == ([], "locked", [])


def test_message_on_probation_is_delivered_alone(harness: StoreHarness) -> None:
    harness.configure(retry_limit=1)
    harness.number(4)
    named(harness, 1, 2)
    harness.advance(31)
    harness.sweep()
    hand = named(harness, 2, 1, 3)
    assert len(hand) == 1
    assert hand.claimed.gone == []


def test_named_lane_of_another_queue_is_gone(harness: StoreHarness) -> None:
    harness.number(1)
    harness.push("x", queue="other")
    lane = lane_of(harness)
    hand = harness.claim(10, queue="other", only=(LaneRange(lane, 0, 1), LaneRange(1 << 30, 0, 1)))  # type: ignore[arg-type]
    assert hand.bodies == []
    assert sorted(hand.claimed.gone) == [(lane, 0, 1), (1 << 30, 0, 1)]


def test_paused_queue_hands_out_no_named_message(harness: StoreHarness) -> None:
    harness.number(1)
    harness.do(c.PauseQueue(queue="q"))
    hand = named(harness, 0)
    assert (hand.why, hand.claimed.gone) == ("paused", [])
    assert available(harness).ranges == []


def test_empty_named_claim_creates_the_group(harness: StoreHarness) -> None:
    harness.number(2)
    with pytest.raises(UnknownGroup):
        available(harness, group="new")
    assert harness.claim(1, group="new", only=()).why == "empty"
    assert seqs(available(harness, group="new")) == [0, 1]


@pytest.mark.parametrize(
    "bad",
    [
        {"queue": None, "namespace": "n"},
        {"key": "k"},
        {"auto_ack": True},
        {"partitions": ("p",)},
        {"priorities": (1,)},
        {"only": tuple(LaneRange(1, n, n + 1) for n in range(1001))},  # type: ignore[arg-type]
        {"only": (LaneRange(1, 3, 3),)},  # type: ignore[arg-type]
        {"only": (LaneRange(1, -1, 3),)},  # type: ignore[arg-type]
        {"only": (LaneRange(-1, 1, 3),)},  # type: ignore[arg-type]
    ],
)
def test_named_claim_with_bad_fields_changes_nothing(harness: StoreHarness, bad: dict[str, object]) -> None:
    harness.number(1)
    before = harness.everything()
    with pytest.raises(BadInput):
        harness.do(c.Claim(**{"queue": "q", "only": (LaneRange(1, 0, 1),), **bad}))  # type: ignore[arg-type]
    assert harness.everything() == before


def test_claim_without_named_messages_decodes_as_before() -> None:
    old = b'{"type":"claim","queue":"q","most":3}'
    assert msgspec.json.decode(old, type=c.Claim) == c.Claim(queue="q", most=3)
    new = c.Claim(queue="q", only=(LaneRange(1, 2, 3),))  # type: ignore[arg-type]
    assert msgspec.json.decode(msgspec.json.encode(new), type=c.Claim) == new


def test_available_lists_places_in_pages_and_returns(harness: StoreHarness) -> None:
    harness.number(10)
    harness.claim(1, only=())
    first = available(harness, limit=4)
    assert (seqs(first), first.more) == ([0, 1, 2, 3], True)
    grp, epoch = first.ranges[0].generation
    lane = lane_of(harness)
    second = available(harness, limit=10, seen={lane: (grp, epoch, 4)})
    assert (seqs(second), second.more) == ([4, 5, 6, 7, 8, 9], False)
    hand = named(harness, 2, 6)
    harness.retry(hand.deliveries[0])
    page = available(harness, seen={lane: (grp, epoch, 10)})
    assert [(found.lo, found.hi, found.deliveries) for found in page.ranges] == [(2, 3, 1)]
    assert seqs(available(harness, seen={lane: (grp, epoch, 4)})) == [2, 4, 5, 7, 8, 9]
    harness.retry(hand.deliveries[1], delay=5)
    assert available(harness, seen={lane: (grp, epoch, 10)}).until == harness.clock.now() + 5_000_000
    harness.seek("start")
    assert seqs(available(harness, seen={lane: (grp, epoch, 10)})) == list(range(10)), "a seek shows everything again"


def test_available_lists_every_returned_message_in_pages(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if many messages returned at one instant, and while unread messages follow."""
    monkeypatch.setattr(available_reads, "MOST_RETURNED", 3)
    harness.number(40)
    hand = named(harness, *range(0, 30, 2))
    for number, delivery in enumerate(hand.deliveries):
        harness.release(delivery)
        if number % 5 == 0:
            harness.advance(1)
    places: list[int] = []
    seen: dict[int, tuple[int, int, int]] = {}
    page = available(harness, limit=6)
    while True:
        places += seqs(page)
        for found in page.ranges:
            if not found.due_at:
                seen[found.lane] = (*found.generation, found.hi)
        if not page.more:
            break
        page = available(harness, limit=6, seen=seen, after=page.next, returned_after=page.returned_next)
    assert {seq for seq in places if seq < 30 and not seq % 2} == set(range(0, 30, 2))
    assert set(places) == set(range(40))


def test_available_respects_delay_and_window(harness: StoreHarness) -> None:
    harness.configure(delay_seconds=10)
    harness.number(3)
    harness.claim(1, only=())
    page = available(harness)
    assert (page.ranges, page.until) == ([], harness.clock.now() + 10_000_000)
    assert named(harness, 1).claimed.gone == [], "an unread message is never gone"
    harness.advance(10)
    assert seqs(available(harness)) == [0, 1, 2]
    assert named(harness, 1).bodies == ["1"]


def test_available_visits_every_lane(harness: StoreHarness) -> None:
    for number in range(70):
        harness.push(str(number), partition=f"p{number}")
    harness.claim(1, only=())
    after, found = (-1, -1, -1), 0
    while True:
        page = available(harness, after=after, limit=30, seen={})
        found += len(page.ranges)
        if not page.more:
            break
        assert page.next > after
        after = page.next
    assert found == 70


def test_age_retention_expires_bypassed_messages(harness: StoreHarness) -> None:
    harness.configure(retention_seconds=60)
    for number in range(6):
        harness.push(str(number))
    harness.ack(*named(harness, 4).deliveries)
    harness.advance(61)
    harness.push("new")
    harness.sweep("retain")
    assert counts(harness.group()) == {"acked": 1, "expired": 5, "unread": 1}
    assert harness.claim(10, **FREE).bodies == ["new"]


def test_completed_retention_keeps_bypassed_messages(harness: StoreHarness) -> None:
    harness.configure(completed_retention_seconds=60)
    for number in range(3):
        harness.push(str(number))
    harness.ack(*named(harness, 0, 2).deliveries)
    harness.advance(61)
    harness.sweep("retain")
    assert harness.claim(10, **FREE).bodies == ["1"]


def test_max_wait_buries_bypassed_messages(harness: StoreHarness) -> None:
    harness.configure(max_wait_seconds=60)
    harness.number(3)
    harness.ack(*named(harness, 2).deliveries)
    harness.advance(61)
    harness.sweep("max_wait")
    assert {letter.reason for letter in harness.dead()} == {"max_wait"}
    assert counts(harness.group()) == {"acked": 1, "dead": 2}


def test_claim_with_pushed_by_skips_newer_bypassed_messages(harness: StoreHarness) -> None:
    harness.number(2)
    until = harness.clock.now()
    harness.advance(1)
    harness.push("late")
    harness.push("taken")
    lane = lane_of(harness)
    harness.ack(*harness.claim(1, only=(LaneRange(lane, 1, 2),), **FREE).deliveries)  # type: ignore[arg-type]
    harness.claim(1, only=(LaneRange(lane, 3, 4),), **FREE)  # type: ignore[arg-type]
    assert harness.claim(10, pushed_by=until, **FREE).bodies == ["0"]
    assert harness.claim(10, **FREE).bodies == ["late"]


def test_random_named_claims_deliver_each_message_once(store: DatabaseStore, harness: StoreHarness) -> None:
    """Named and plain claims with random outcomes: conservation holds and each message ends in one ack."""
    dice = random.Random(7)
    acked: list[str] = []
    harness.number(60)
    while len(acked) < 60:
        if dice.random() < 0.7:
            hand = named(harness, *sorted(dice.sample(range(60), dice.randint(1, 20))), most=dice.randint(1, 20))
        else:
            hand = harness.claim(dice.randint(1, 3), **FREE)
        for delivery in hand.deliveries:
            if dice.random() < 0.7:
                harness.ack(delivery)
                acked.append(delivery.body)
            else:
                harness.release(delivery)
        if dice.random() < 0.1:
            assert store.audit() == []
    assert sorted(acked, key=int) == [str(n) for n in range(60)]
    assert counts(harness.group()) == {"acked": 60}


def test_concurrent_named_claims_share_without_overlap(harness: StoreHarness) -> None:
    harness.number(40)
    harness.claim(1, only=())

    def work(number: int) -> list[str]:
        bodies: list[str] = []
        for _ in range(3):
            bodies += named(harness, *range(number % 2, 40, 2), most=5).bodies
        return bodies

    with ThreadPoolExecutor(4) as pool:
        got = [body for bodies in pool.map(work, range(4)) for body in bodies]
    assert sorted(got, key=int) == [str(n) for n in range(40)]
