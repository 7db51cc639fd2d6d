"""Extend: a later deadline for a lease that is held, never a second life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core.answers import Extended
from ackwise.core.errors import BadInput
from ackwise.core.limits import MICROS
from ackwise.core.settlement import Outcome
from tests.contract.support import Desk, Hand, counts, entry


def extend(desk: Desk, lease_id: str, **how: Any) -> Extended:
    answer: Extended = desk.do(c.Extend(lease_id=lease_id, **how))
    return answer


def test_a_new_lease_time_counts_from_now(desk: Desk) -> None:
    desk.push("a")
    got = desk.take(seconds=10)
    desk.advance(6)
    answer = extend(desk, got.lease_id, lease=10 * MICROS)
    assert (answer.verdict, answer.deadline) == (None, desk.clock.now() + 10 * MICROS)
    desk.advance(9)
    assert desk.ack(got) == ["acked"]


def test_it_may_shorten(desk: Desk) -> None:
    desk.push("a")
    got = desk.take(seconds=100)
    extend(desk, got.lease_id, lease=MICROS)
    desk.advance(1)
    assert desk.take().attempt == 2


def test_adding_counts_from_the_old_deadline(desk: Desk) -> None:
    desk.push("a")
    hand = desk.claim(seconds=10)
    assert extend(desk, hand.lease_id, add=5 * MICROS).deadline == hand.claimed.deadline + 5 * MICROS


def test_an_expired_lease_is_not_revived(desk: Desk) -> None:
    desk.push("a")
    got = desk.take(seconds=10)
    desk.advance(10)
    answer = extend(desk, got.lease_id, lease=10 * MICROS)
    assert (answer.verdict, answer.deadline) == ("stale", None)
    assert desk.take().attempt == 2
    assert extend(desk, got.lease_id, add=10 * MICROS).verdict == "stale"


def test_a_settled_lease_says_already_and_a_foreign_one_unknown(desk: Desk) -> None:
    desk.push("a")
    got = desk.take()
    desk.ack(got)
    assert extend(desk, got.lease_id, lease=MICROS).verdict == "already"
    desk.push("b")
    back = desk.take()
    desk.release(c.ByLease(back.lease_id))
    assert extend(desk, back.lease_id, lease=MICROS).verdict == "stale", "it was not finished, it is somebody else's"
    dead = desk.take()
    desk.store.transact([c.Settle(entries=[c.Settlement(selector=c.ByLease(dead.lease_id), outcome=Outcome.REJECT)])])
    assert extend(desk, dead.lease_id, lease=MICROS).verdict == "already", "nobody gets it again"
    no, _, _ = got.lease_id.partition("-")
    for text in (f"{no}-00000000", "L999-00000000", "", "x" * 500):
        assert extend(desk, text, lease=MICROS).verdict == "unknown"


@pytest.mark.parametrize(
    "lease", [0, -1, 24 * 3600 * MICROS + 1, 10**400], ids=["zero", "negative", "over a day", "huge"]
)
def test_the_time_is_checked(desk: Desk, lease: int) -> None:
    desk.push("a")
    hand = desk.claim()
    for how in ({"lease": lease}, {"add": lease}):
        with pytest.raises(BadInput):
            extend(desk, hand.lease_id, **how)


def test_one_way_to_say_it(desk: Desk) -> None:
    with pytest.raises(BadInput):
        extend(desk, "L1-00000000")
    with pytest.raises(BadInput):
        extend(desk, "L1-00000000", lease=MICROS, add=MICROS)


def test_an_extended_lease_survives_the_sweep(desk: Desk) -> None:
    desk.push("a")
    got = desk.take(seconds=10)
    extend(desk, got.lease_id, lease=60 * MICROS)
    desk.advance(11)
    assert desk.sweep("expire") == {"expire": 0}
    assert counts(desk.group()) == {"held": 1}


@pytest.mark.parametrize("outcome", ["retry", "release"])
@pytest.mark.parametrize("bulk", [False, True])
def test_of_a_lease_that_gave_something_back_before_it_was_finished_it_is_stale(
    desk: Desk, outcome: str, bulk: bool
) -> None:
    desk.number(3)
    desk.number(1, partition="other")
    hand = desk.claim(bulk=bulk)
    one, *rest = hand.deliveries
    assert desk.settle(entry(one, outcome))[0].verdict.settled
    assert extend(desk, hand.lease_id, lease=MICROS).verdict is None, "it holds the others"
    assert desk.ack(*rest) == ["acked"] * 3
    answer = extend(desk, hand.lease_id, lease=MICROS)
    assert (answer.verdict, answer.by_settling) == ("stale", True), "nothing of it was taken away"


@pytest.mark.parametrize("whole", [False, True])
def test_where_failures_rewind_the_rest_of_a_lease_is_somebody_elses(desk: Desk, whole: bool) -> None:
    desk.configure(on_failure="rewind", exclusivity="partition")
    desk.number(3)
    hand = desk.claim()
    assert desk.retry(c.ByLease(hand.lease_id) if whole else hand.deliveries[0]) == ["retried"]
    assert extend(desk, hand.lease_id, lease=MICROS).verdict == "stale"
    hand = desk.claim()
    assert desk.reject(c.ByLease(hand.lease_id) if whole else hand.deliveries[0]) == ["dead"]
    assert extend(desk, hand.lease_id, lease=MICROS).verdict == "stale", "of three only one is dead"


def test_where_failures_rewind_a_lease_of_which_everything_is_dead_is_finished(desk: Desk) -> None:
    desk.configure(on_failure="rewind", exclusivity="partition")
    desk.number(1)
    desk.number(1, partition="other")
    hand = desk.claim()
    assert desk.reject(c.ByLease(hand.lease_id)) == ["dead"]
    assert extend(desk, hand.lease_id, lease=MICROS).verdict == "already"
    (answer,) = desk.settle(entry(c.ByLease(hand.lease_id)))
    assert (answer.verdict, answer.unacked) == ("already", True)


def test_a_lease_that_lost_something_to_a_seek_is_not_finished_by_the_rest(desk: Desk) -> None:
    desk.number(1)
    desk.number(1, partition="other")
    hand = desk.claim()
    desk.seek("end", partition="other")
    desk.ack(*hand.deliveries)
    assert extend(desk, hand.lease_id, lease=MICROS).verdict == "stale"


def test_what_took_something_of_a_lease_away_was_no_settling_of_it(desk: Desk) -> None:
    desk.configure(retry_limit=99, delivery_limit=None)
    desk.number(2)

    def ends(how: Callable[[Hand], object]) -> tuple[str | None, bool]:
        how(hand := desk.claim(seconds=10))
        answer = extend(desk, hand.lease_id, lease=MICROS)
        return answer.verdict, answer.by_settling

    def acked_in_part(hand: Hand) -> None:
        desk.ack(hand.deliveries[0])
        desk.advance(10)
        desk.sweep()

    assert ends(lambda hand: None) == (None, False)
    desk.advance(10)
    assert ends(lambda hand: desk.release(c.ByLease(hand.lease_id))) == ("stale", False), "as a whole: by anybody"
    assert ends(lambda hand: desk.advance(10)) == ("stale", False)
    assert ends(acked_in_part) == ("stale", False)
    assert ends(lambda hand: desk.retry(hand.deliveries[0])) == ("stale", True)
    assert ends(lambda hand: desk.seek("end")) == ("stale", False)
    desk.configure(on_failure="rewind", exclusivity="partition")
    desk.number(2, queue="q", partition="other")
    assert ends(lambda hand: desk.retry(hand.deliveries[0])) == ("stale", False), "the other went back with it"
    assert ends(lambda hand: (desk.ack(hand.deliveries[0]), desk.reject(hand.deliveries[1]))) == ("already", True)
    assert extend(desk, "L999-00000000", lease=MICROS).by_settling is False
