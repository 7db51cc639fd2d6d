"""Extend: a later deadline for a lease that is held, never a second life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core.answers import Extended
from ackwise.core.errors import BadInput
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from tests.engine.store_harness import Hand, StoreHarness, counts, entry


def extend(harness: StoreHarness, lease_id: str, **how: Any) -> Extended:
    answer: Extended = harness.do(c.Extend(lease_id=lease_id, **how))
    return answer


def test_new_lease_time_counts_from_now(harness: StoreHarness) -> None:
    harness.push("a")
    got = harness.take(seconds=10)
    harness.advance(6)
    answer = extend(harness, got.lease_id, lease=10 * MICROS)
    assert (answer.verdict, answer.deadline) == (None, harness.clock.now() + 10 * MICROS)
    harness.advance(9)
    assert harness.ack(got) == ["acked"]


def test_extend_may_shorten_a_lease(harness: StoreHarness) -> None:
    harness.push("a")
    got = harness.take(seconds=100)
    extend(harness, got.lease_id, lease=MICROS)
    harness.advance(1)
    assert harness.take().attempt == 2


def test_adding_counts_from_the_old_deadline(harness: StoreHarness) -> None:
    harness.push("a")
    hand = harness.claim(seconds=10)
    assert extend(harness, hand.lease_id, add=5 * MICROS).deadline == hand.claimed.deadline + 5 * MICROS


def test_expired_lease_is_not_revived(harness: StoreHarness) -> None:
    harness.push("a")
    got = harness.take(seconds=10)
    harness.advance(10)
    answer = extend(harness, got.lease_id, lease=10 * MICROS)
    assert (answer.verdict, answer.deadline) == ("stale", None)
    assert harness.take().attempt == 2
    assert extend(harness, got.lease_id, add=10 * MICROS).verdict == "stale"


def test_settled_lease_says_already_and_a_foreign_one_unknown(harness: StoreHarness) -> None:
    harness.push("a")
    got = harness.take()
    harness.ack(got)
    assert extend(harness, got.lease_id, lease=MICROS).verdict == "already"
    harness.push("b")
    back = harness.take()
    harness.release(c.ByLease(back.lease_id))
    assert extend(harness, back.lease_id, lease=MICROS).verdict == "stale", "another claim holds it, unfinished"
    dead = harness.take()
    harness.store.transact(
        [c.Settle(entries=[c.Settlement(selector=c.ByLease(dead.lease_id), outcome=Outcome.REJECT)])]
    )
    assert extend(harness, dead.lease_id, lease=MICROS).verdict == "already", "no claim gets a dead message again"
    no, _, _ = got.lease_id.partition("-")
    for text in (f"{no}-00000000", "L999-00000000", "", "x" * 500):
        assert extend(harness, text, lease=MICROS).verdict == "unknown"


@pytest.mark.parametrize(
    "lease", [0, -1, 24 * 3600 * MICROS + 1, 10**400], ids=["zero", "negative", "over a day", "huge"]
)
def test_time_is_checked(harness: StoreHarness, lease: int) -> None:
    harness.push("a")
    hand = harness.claim()
    for how in ({"lease": lease}, {"add": lease}):
        with pytest.raises(BadInput):
            extend(harness, hand.lease_id, **how)


def test_extend_needs_either_lease_or_add(harness: StoreHarness) -> None:
    with pytest.raises(BadInput):
        extend(harness, "L1-00000000")
    with pytest.raises(BadInput):
        extend(harness, "L1-00000000", lease=MICROS, add=MICROS)


def test_extended_lease_survives_the_sweep(harness: StoreHarness) -> None:
    harness.push("a")
    got = harness.take(seconds=10)
    extend(harness, got.lease_id, lease=60 * MICROS)
    harness.advance(11)
    assert harness.sweep("expire") == {"expire": 0}
    assert counts(harness.group()) == {"held": 1}


@pytest.mark.parametrize("outcome", ["retry", "release"])
@pytest.mark.parametrize("bulk", [False, True])
def test_extend_of_lease_with_returned_message_is_stale(harness: StoreHarness, outcome: str, bulk: bool) -> None:
    harness.number(3)
    harness.number(1, partition="other")
    hand = harness.claim(bulk=bulk)
    one, *rest = hand.deliveries
    assert harness.settle(entry(one, outcome))[0].verdict.settled
    assert extend(harness, hand.lease_id, lease=MICROS).verdict is None, "it holds the others"
    assert harness.ack(*rest) == ["acked"] * 3
    answer = extend(harness, hand.lease_id, lease=MICROS)
    assert (answer.verdict, answer.by_settling) == ("stale", True), "nothing of it was taken away"


@pytest.mark.parametrize("whole", [False, True])
def test_rest_of_rewound_lease_belongs_to_next_holder(harness: StoreHarness, whole: bool) -> None:
    harness.configure(on_failure="rewind", exclusivity="partition")
    harness.number(3)
    hand = harness.claim()
    assert harness.retry(c.ByLease(hand.lease_id) if whole else hand.deliveries[0]) == ["retried"]
    assert extend(harness, hand.lease_id, lease=MICROS).verdict == "stale"
    hand = harness.claim()
    assert harness.reject(c.ByLease(hand.lease_id) if whole else hand.deliveries[0]) == ["dead"]
    assert extend(harness, hand.lease_id, lease=MICROS).verdict == "stale", "of three only one is dead"


def test_rewound_lease_with_only_dead_messages_is_finished(harness: StoreHarness) -> None:
    harness.configure(on_failure="rewind", exclusivity="partition")
    harness.number(1)
    harness.number(1, partition="other")
    hand = harness.claim()
    assert harness.reject(c.ByLease(hand.lease_id)) == ["dead"]
    assert extend(harness, hand.lease_id, lease=MICROS).verdict == "already"
    (answer,) = harness.settle(entry(c.ByLease(hand.lease_id)))
    assert (answer.verdict, answer.unacked) == ("already", True)


def test_lease_cut_by_seek_is_not_finished_by_the_rest(harness: StoreHarness) -> None:
    harness.number(1)
    harness.number(1, partition="other")
    hand = harness.claim()
    harness.seek("end", partition="other")
    harness.ack(*hand.deliveries)
    assert extend(harness, hand.lease_id, lease=MICROS).verdict == "stale"


def test_extend_after_loss_does_not_report_settling(harness: StoreHarness) -> None:
    harness.configure(retry_limit=99, delivery_limit=None)
    harness.number(2)

    def ends(how: Callable[[Hand], object]) -> tuple[str | None, bool]:
        how(hand := harness.claim(seconds=10))
        answer = extend(harness, hand.lease_id, lease=MICROS)
        return answer.verdict, answer.by_settling

    def acked_in_part(hand: Hand) -> None:
        harness.ack(hand.deliveries[0])
        harness.advance(10)
        harness.sweep()

    assert ends(lambda hand: None) == (None, False)
    harness.advance(10)
    assert ends(lambda hand: harness.release(c.ByLease(hand.lease_id))) == ("stale", False), "as a whole: by anybody"
    assert ends(lambda hand: harness.advance(10)) == ("stale", False)
    assert ends(acked_in_part) == ("stale", False)
    assert ends(lambda hand: harness.retry(hand.deliveries[0])) == ("stale", True)
    assert ends(lambda hand: harness.seek("end")) == ("stale", False)
    harness.configure(on_failure="rewind", exclusivity="partition")
    harness.number(2, queue="q", partition="other")
    assert ends(lambda hand: harness.retry(hand.deliveries[0])) == ("stale", False), "the other went back with it"
    assert ends(lambda hand: (harness.ack(hand.deliveries[0]), harness.reject(hand.deliveries[1]))) == ("already", True)
    assert extend(harness, "L999-00000000", lease=MICROS).by_settling is False
