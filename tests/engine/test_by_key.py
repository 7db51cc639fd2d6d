"""Settling and extending a claim by the key that it was made under."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from ackwise.core.validation import MICROS
from tests.engine.store_harness import StoreHarness, counts, entry

KEY = c.ByKey("q", "k")


def test_ack_takes_everything_that_the_claim_holds(harness: StoreHarness) -> None:
    harness.push("a", "b", priority=1)
    harness.push("c")
    assert harness.claim(3, key="k").bodies == ["c", "a", "b"]
    (answer,) = harness.settle(entry(KEY))
    assert (answer.verdict, answer.count, answer.lease_ended) == ("acked", 3, True)
    assert counts(harness.group()) == {"acked": 3}


def test_claim_key_is_settled_once(harness: StoreHarness) -> None:
    harness.push("a")
    harness.claim(key="k")
    assert [harness.ack(KEY), harness.ack(KEY)] == [["acked"], ["already"]]


def test_claim_key_of_another_group_or_queue_is_unknown(harness: StoreHarness) -> None:
    harness.push("a")
    harness.push("a", queue="other")
    harness.claim(key="k")
    strangers = (c.ByKey("q", "x"), c.ByKey("q", "k", "g"), c.ByKey("other", "k"), c.ByKey("nowhere", "k"))
    assert harness.ack(*strangers) == ["unknown"] * 4
    assert counts(harness.group()) == {"held": 1}


def test_expired_claim_key_is_stale_before_and_after_sweep(harness: StoreHarness) -> None:
    harness.push("a")
    harness.claim(key="k", seconds=5)
    harness.advance(5)
    assert harness.ack(KEY) == ["stale"]
    harness.sweep("expire")
    assert harness.ack(KEY) == ["stale"]
    new = harness.take(key="k2")
    assert harness.ack(KEY) == ["stale"]
    assert harness.ack(new) == ["acked"]


def test_newest_lease_of_a_repeated_claim_is_meant(harness: StoreHarness) -> None:
    harness.push("a", "b")
    harness.claim(2, key="k")
    harness.claim(2, key="k")
    assert harness.ack(KEY) == ["acked"]


def test_rejected_claim_names_its_dead_letters(harness: StoreHarness) -> None:
    harness.number(3)
    harness.claim(2, key="k")
    (answer,) = harness.settle(entry(KEY, "reject", error="no"))
    assert (answer.verdict, answer.count) == ("dead", 2)
    assert answer.dead_ids == [letter.id for letter in reversed(harness.dead())]
    (other,) = harness.settle(entry(harness.take(), "reject"))
    assert other.dead_ids == [harness.dead()[0].id]


def test_extending_adds_to_the_deadline(harness: StoreHarness) -> None:
    harness.push("a")
    hand = harness.claim(key="k", seconds=10)
    answer = harness.do(c.Extend(claim=KEY, add=5 * MICROS))
    assert (answer.verdict, answer.deadline) == (None, hand.claimed.deadline + 5 * MICROS)
    harness.advance(15)
    assert harness.do(c.Extend(claim=KEY, add=5 * MICROS)).verdict == "stale"
    assert harness.do(c.Extend(claim=c.ByKey("q", "x"), add=5 * MICROS)).verdict == "unknown"


@pytest.mark.parametrize("claim", [c.ByKey("", "k"), c.ByKey("q", ""), c.ByKey("q", "k" * 256), c.ByKey("q", "\0")])
def test_keys_that_no_claim_can_have_are_refused(harness: StoreHarness, claim: c.ByKey) -> None:
    harness.push("a")
    harness.claim(key="k")
    with pytest.raises(BadInput):
        harness.ack(claim)
    with pytest.raises(BadInput):
        harness.do(c.Extend(claim=claim, add=MICROS))
    assert counts(harness.group()) == {"held": 1}


def test_extending_names_a_lease_or_a_claim(harness: StoreHarness) -> None:
    harness.push("a")
    assert harness.do(c.Extend(add=MICROS)).verdict == "unknown"
    assert harness.store.ask(q.ListLeases()) == []
