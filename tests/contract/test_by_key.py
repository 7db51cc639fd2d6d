"""Settling and extending a claim by the key that it was made under."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from ackwise.core.limits import MICROS
from tests.contract.support import Desk, counts, entry

KEY = c.ByKey("q", "k")


def test_an_ack_takes_everything_that_the_claim_holds(desk: Desk) -> None:
    desk.push("a", "b", priority=1)
    desk.push("c")
    assert desk.claim(3, key="k").bodies == ["c", "a", "b"]
    (answer,) = desk.settle(entry(KEY))
    assert (answer.verdict, answer.count, answer.lease_ended) == ("acked", 3, True)
    assert counts(desk.group()) == {"acked": 3}


def test_it_is_settled_once(desk: Desk) -> None:
    desk.push("a")
    desk.claim(key="k")
    assert [desk.ack(KEY), desk.ack(KEY)] == [["acked"], ["already"]]


def test_only_that_key_of_that_group_and_queue(desk: Desk) -> None:
    desk.push("a")
    desk.push("a", queue="other")
    desk.claim(key="k")
    strangers = (c.ByKey("q", "x"), c.ByKey("q", "k", "g"), c.ByKey("other", "k"), c.ByKey("nowhere", "k"))
    assert desk.ack(*strangers) == ["unknown"] * 4
    assert counts(desk.group()) == {"held": 1}


def test_one_that_ran_out_is_stale_before_and_after_the_sweep(desk: Desk) -> None:
    desk.push("a")
    desk.claim(key="k", seconds=5)
    desk.advance(5)
    assert desk.ack(KEY) == ["stale"]
    desk.sweep("expire")
    assert desk.ack(KEY) == ["stale"]
    new = desk.take(key="k2")
    assert desk.ack(KEY) == ["stale"]
    assert desk.ack(new) == ["acked"]


def test_the_newest_lease_of_a_repeated_claim_is_meant(desk: Desk) -> None:
    desk.push("a", "b")
    desk.claim(2, key="k")
    desk.claim(2, key="k")
    assert desk.ack(KEY) == ["acked"]


def test_a_rejected_claim_names_its_dead_letters(desk: Desk) -> None:
    desk.number(3)
    desk.claim(2, key="k")
    (answer,) = desk.settle(entry(KEY, "reject", error="no"))
    assert (answer.verdict, answer.count) == ("dead", 2)
    assert answer.dead_ids == [letter.id for letter in reversed(desk.dead())]
    (other,) = desk.settle(entry(desk.take(), "reject"))
    assert other.dead_ids == [desk.dead()[0].id]


def test_extending_adds_to_the_deadline(desk: Desk) -> None:
    desk.push("a")
    hand = desk.claim(key="k", seconds=10)
    answer = desk.do(c.Extend(claim=KEY, add=5 * MICROS))
    assert (answer.verdict, answer.deadline) == (None, hand.claimed.deadline + 5 * MICROS)
    desk.advance(15)
    assert desk.do(c.Extend(claim=KEY, add=5 * MICROS)).verdict == "stale"
    assert desk.do(c.Extend(claim=c.ByKey("q", "x"), add=5 * MICROS)).verdict == "unknown"


@pytest.mark.parametrize("claim", [c.ByKey("", "k"), c.ByKey("q", ""), c.ByKey("q", "k" * 256), c.ByKey("q", "\0")])
def test_keys_that_no_claim_can_have_are_refused(desk: Desk, claim: c.ByKey) -> None:
    desk.push("a")
    desk.claim(key="k")
    with pytest.raises(BadInput):
        desk.ack(claim)
    with pytest.raises(BadInput):
        desk.do(c.Extend(claim=claim, add=MICROS))
    assert counts(desk.group()) == {"held": 1}


def test_extending_names_a_lease_or_a_claim(desk: Desk) -> None:
    desk.push("a")
    assert desk.do(c.Extend(add=MICROS)).verdict == "unknown"
    assert desk.store.list_leases(q.ListLeases()) == []
