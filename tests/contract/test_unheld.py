"""Settling by transaction id without a lease what nobody holds now: refused, unless the call says it is meant."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from tests.contract.support import Delivery, Desk, counts, entry


@pytest.fixture
def held(desk: Desk) -> list[Delivery]:
    desk.configure(exclusivity="partition", expiry_counts=False)
    desk.number(3)
    return desk.claim(3, seconds=30).deliveries


def meant(delivery: Delivery) -> c.ByTransaction:
    return c.ByTransaction(delivery.partition_id, delivery.transaction_id, unheld=True)


@pytest.mark.parametrize("swept", [False, True])
def test_after_its_lease_ran_out_a_message_can_still_be_acked_if_that_is_meant(
    desk: Desk, held: list[Delivery], swept: bool
) -> None:
    desk.advance(31)
    if swept:
        desk.sweep("expire")
    strict = c.ByTransaction(held[1].partition_id, held[1].transaction_id)
    assert desk.ack(strict) == ["stale"]
    assert desk.ack(meant(held[1])) == ["acked"]
    assert counts(desk.group()) == {"acked": 1, "held": 2}
    assert desk.ack(meant(held[1])) == ["already"]
    assert desk.claim(9).bodies == ["0", "2"]


def test_a_failure_is_charged_and_the_last_one_is_final(desk: Desk, held: list[Delivery]) -> None:
    desk.advance(31)
    desk.sweep("expire")
    assert [desk.retry(meant(held[0]), error="no") for _ in range(3)] == [["retried"], ["retried"], ["dead"]]
    assert [letter.failures for letter in desk.dead()] == [3]
    assert counts(desk.group()) == {"dead": 1, "held": 2}


def test_what_was_never_handed_out_is_unknown(desk: Desk, held: list[Delivery]) -> None:
    desk.push("more", txid="more")
    assert desk.ack(c.ByTransaction(held[0].partition_id, "more", unheld=True)) == ["unknown"]


def test_what_somebody_holds_is_settled_under_that_lease(desk: Desk, held: list[Delivery]) -> None:
    answers = desk.settle(*(entry(meant(d)) for d in held))
    assert [a.verdict for a in answers] == ["acked"] * 3
    assert answers[-1].lease_ended


def test_with_rewind_it_means_up_to_there(desk: Desk, held: list[Delivery]) -> None:
    desk.configure(on_failure="rewind")
    desk.advance(31)
    desk.sweep("expire")
    assert desk.ack(meant(held[1])) == ["acked"]
    assert desk.claim(9).bodies == ["2"]
