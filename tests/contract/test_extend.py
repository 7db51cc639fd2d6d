"""Extend: a later deadline for a lease that is held, never a second life."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core.answers import Extended
from ackwise.core.errors import BadInput
from ackwise.core.limits import MICROS
from ackwise.core.settlement import Outcome
from tests.contract.support import Desk, counts


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
