"""Settling an unheld message by transaction id without a lease: refused, unless the call sets `unheld`."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from tests.engine.store_harness import Delivery, StoreHarness, counts, entry


@pytest.fixture
def held(harness: StoreHarness) -> list[Delivery]:
    harness.configure(exclusivity="partition", expiry_counts=False)
    harness.number(3)
    return harness.claim(3, seconds=30).deliveries


def meant(delivery: Delivery) -> c.ByTransaction:
    return c.ByTransaction(delivery.partition_id, delivery.transaction_id, unheld=True)


@pytest.mark.parametrize("swept", [False, True])
def test_unheld_ack_after_lease_expiry_succeeds(harness: StoreHarness, held: list[Delivery], swept: bool) -> None:
    harness.advance(31)
    if swept:
        harness.sweep("expire")
    strict = c.ByTransaction(held[1].partition_id, held[1].transaction_id)
    assert harness.ack(strict) == ["stale"]
    assert harness.ack(meant(held[1])) == ["acked"]
    assert counts(harness.group()) == {"acked": 1, "held": 2}
    assert harness.ack(meant(held[1])) == ["already"]
    assert harness.claim(9).bodies == ["0", "2"]


def test_failure_is_charged_and_the_last_one_is_final(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.advance(31)
    harness.sweep("expire")
    assert [harness.retry(meant(held[0]), error="no") for _ in range(3)] == [["retried"], ["retried"], ["dead"]]
    assert [letter.failures for letter in harness.dead()] == [3]
    assert counts(harness.group()) == {"dead": 1, "held": 2}


def test_ack_of_a_message_never_delivered_is_unknown(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.push("more", txid="more")
    assert harness.ack(c.ByTransaction(held[0].partition_id, "more", unheld=True)) == ["unknown"]


def test_held_message_is_settled_under_its_lease(harness: StoreHarness, held: list[Delivery]) -> None:
    answers = harness.settle(*(entry(meant(d)) for d in held))
    assert [a.verdict for a in answers] == ["acked"] * 3
    assert answers[-1].lease_ended


def test_unheld_ack_with_rewind_acks_up_to_its_message(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.configure(on_failure="rewind")
    harness.advance(31)
    harness.sweep("expire")
    assert harness.ack(meant(held[1])) == ["acked"]
    assert harness.claim(9).bodies == ["2"]


def test_unheld_drops_of_one_call_are_all_recorded(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.configure(dead_letters=False)
    harness.advance(31)
    assert harness.reject(meant(held[0]), meant(held[2])) == ["dead", "dead"]
    named = [c.ByTransaction(d.partition_id, d.transaction_id, lease_id=d.lease_id) for d in (held[0], held[2])]
    assert [answer.unacked for answer in harness.settle(*map(entry, named))] == [True, True]
