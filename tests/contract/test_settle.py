"""Settle: what an entry can name, what is answered, and that it happens once."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core.messages import QUEUE_MODE
from tests.contract.support import Delivery, Desk, counts, entry


@pytest.fixture
def held(desk: Desk) -> list[Delivery]:
    desk.number(5)
    return desk.claim().deliveries


def by_id(delivery: Delivery, **rest: Any) -> c.ByTransaction:
    return c.ByTransaction(delivery.partition_id, delivery.transaction_id, **rest)


def test_an_ack_in_the_middle_leaves_the_rest_held(desk: Desk, held: list[Delivery]) -> None:
    (answer,) = desk.settle(entry(held[2]))
    assert (answer.verdict, answer.count, answer.lease_ended) == ("acked", 1, False)
    assert counts(desk.group()) == {"acked": 1, "held": 4}
    assert desk.states() == ["leased", "leased", "acked", "leased", "leased"]


def test_acks_in_any_order_end_the_lease(desk: Desk, held: list[Delivery]) -> None:
    answers = [desk.settle(entry(held[i]))[0] for i in (3, 0, 4, 1, 2)]
    assert [a.lease_ended for a in answers] == [False] * 4 + [True]
    assert counts(desk.group()) == {"acked": 5}
    assert desk.group().leases == 0


def test_neighbours_in_one_call_are_settled_together(desk: Desk, held: list[Delivery]) -> None:
    answers = desk.settle(*(entry(d) for d in held))
    assert [(a.verdict, a.count) for a in answers] == [("acked", 1)] * 5
    assert answers[-1].lease_ended


@pytest.mark.parametrize(
    ("order", "verdicts"),
    [
        ([4, 3, 2, 1, 0], ["acked"] * 5),
        ([2, 4, 0, 3, 1], ["acked"] * 5),
        ([3, 1, 3, 0, 1], ["acked", "acked", "already", "acked", "already"]),
    ],
)
def test_many_acks_in_one_call_in_any_order(
    desk: Desk, held: list[Delivery], order: list[int], verdicts: list[str]
) -> None:
    """Each is answered where it stands; the one that is named twice is already settled the second time."""
    answers = desk.settle(*(entry(held[at]) for at in order))
    assert [a.verdict for a in answers] == verdicts
    assert [a.count for a in answers if a.verdict == "acked"] == [1] * len(set(order))
    assert answers[-1].lease_ended == (len(set(order)) == 5)
    assert desk.states() == ["acked" if at in order else "leased" for at in range(5)]


def test_acks_that_overlap_in_one_call_keep_their_order(desk: Desk, held: list[Delivery]) -> None:
    """The single one comes first, and so the range has one less."""
    some = c.ByRange(held[0].lease_id, held[0].lane, 1, 4)
    answers = desk.settle(entry(held[4]), entry(held[2]), entry(some), entry(held[0]))
    assert [(a.verdict, a.count) for a in answers] == [("acked", 1), ("acked", 1), ("acked", 2), ("acked", 1)]
    assert answers[-1].lease_ended


def test_ids_that_only_begin_like_another_name_nothing(desk: Desk, held: list[Delivery]) -> None:
    """Of many ids what they share is looked at once, and what follows is not taken on trust."""
    head = held[0].id.rpartition(".")[0]
    odd = [f"{head}.{tail}" for tail in ("", "-1", "+1", "1 ", "A", "1_0", "zzzz", "9" * 13, "²")]
    answers = desk.settle(entry(held[0]), *(entry(one) for one in odd), entry(held[1]))
    assert [a.verdict for a in answers] == ["acked", *["unknown"] * len(odd), "acked"]


def test_mixed_outcomes_in_one_call(desk: Desk, held: list[Delivery]) -> None:
    answers = desk.settle(
        entry(held[0], "ack"),
        entry(held[1], "retry"),
        entry(held[2], "reject", error="no good"),
        entry(held[3], "release"),
        entry(held[4], "ack"),
    )
    assert [a.verdict for a in answers] == ["acked", "retried", "dead", "released", "acked"]
    assert counts(desk.group()) == {"acked": 2, "dead": 1, "held": 2}
    assert desk.states() == ["acked", "waiting", "dead", "waiting", "acked"]


def test_a_range(desk: Desk, held: list[Delivery]) -> None:
    (answer,) = desk.settle(entry(c.ByRange(held[0].lease_id, held[0].lane, 1, 4)))
    assert (answer.verdict, answer.count) == ("acked", 3)
    assert desk.states() == ["leased", "acked", "acked", "acked", "leased"]


def test_a_range_settles_what_is_outstanding_in_it(desk: Desk, held: list[Delivery]) -> None:
    desk.ack(held[1], held[2])
    whole = c.ByRange(held[0].lease_id, held[0].lane, 0, 1000)
    (answer,) = desk.settle(entry(whole, "release"))
    assert (answer.verdict, answer.count, answer.lease_ended) == ("released", 3, True)
    assert desk.ack(whole) == ["already"]


def test_a_whole_lease_over_several_lanes(desk: Desk) -> None:
    for name in "abc":
        desk.push("1", "2", partition=name)
    hand = desk.claim()
    desk.ack(hand.deliveries[0])
    (answer,) = desk.settle(entry(c.ByLease(hand.lease_id)))
    assert (answer.verdict, answer.count, answer.lease_ended) == ("acked", 5, True)
    assert counts(desk.group()) == {"acked": 6}


def test_by_transaction_id_and_lease(desk: Desk, held: list[Delivery]) -> None:
    assert desk.ack(by_id(held[1], lease_id=held[1].lease_id)) == ["acked"]
    assert desk.states()[1] == "acked"


def test_by_transaction_id_the_current_holder_is_settled(desk: Desk, held: list[Delivery]) -> None:
    assert desk.ack(by_id(held[1])) == ["acked"]
    assert desk.ack(by_id(held[1])) == ["already"]


def test_by_minted_transaction_id(desk: Desk) -> None:
    desk.push("a")
    got = desk.take()
    assert desk.ack(by_id(got)) == ["acked"]


def test_by_transaction_id_the_group_is_the_leases_or_the_default(desk: Desk) -> None:
    desk.number(1)
    default, named = desk.take(), desk.take(group="g")
    assert desk.ack(by_id(named, lease_id=named.lease_id)) == ["acked"]
    assert counts(desk.group("g")) == {"acked": 1}
    assert counts(desk.group(QUEUE_MODE)) == {"held": 1}
    assert desk.ack(by_id(default)) == ["acked"]
    assert counts(desk.group(QUEUE_MODE)) == {"acked": 1}
    assert desk.ack(by_id(default, group="nobody")) == ["unknown"]


def test_by_transaction_id_nobody_holds_it(desk: Desk, held: list[Delivery]) -> None:
    desk.release(held[0])
    assert desk.ack(by_id(held[0])) == ["stale"]
    assert desk.ack(by_id(held[0], lease_id=held[0].lease_id)) == ["stale"]


def test_by_transaction_id_and_lease_a_failure_said_again_is_already(desk: Desk, held: list[Delivery]) -> None:
    failed, released, _, _, lost = [by_id(one, lease_id=one.lease_id) for one in held]
    assert (desk.retry(failed), desk.release(released)) == (["retried"], ["released"])
    before = desk.everything()
    assert (desk.retry(failed), desk.release(released)) == (["already"], ["already"])
    assert desk.everything() == before
    again = {one.seq: one for one in desk.claim().deliveries}
    assert (desk.retry(failed), again[0].failures) == (["already"], 1), "somebody else has it, and keeps it"
    assert desk.ack(failed, by_id(again[0], lease_id=again[0].lease_id)) == ["stale", "acked"]
    desk.advance(10_000)
    desk.sweep()
    assert desk.retry(lost) == ["stale"], "it ran out"
    assert desk.retry(by_id(held[4], lease_id=held[4].lease_id, group="g")) == ["unknown"]


def test_by_transaction_id_and_lease_what_is_fenced_is_stale_as_soon_as_the_lease_let_it_go(
    desk: Desk, held: list[Delivery]
) -> None:
    failed, released, acked, dead, _ = [by_id(one, lease_id=one.lease_id, fenced=True) for one in held]
    assert (desk.retry(failed), desk.release(released)) == (["retried"], ["released"])
    assert (desk.ack(acked), desk.reject(dead)) == (["acked"], ["dead"])
    before = desk.everything()
    assert (desk.retry(failed), desk.release(released), desk.ack(failed)) == (["stale"], ["stale"], ["stale"])
    assert (desk.retry(acked), desk.reject(dead)) == (["already"], ["already"]), "what ended has ended"
    assert desk.everything() == before
    desk.claim()
    assert desk.retry(failed) == ["stale"], "somebody else has it"


def test_by_transaction_id_never_handed_out(desk: Desk) -> None:
    desk.number(2)
    got = desk.take()
    part = got.partition_id
    assert desk.ack(c.ByTransaction(part, "t1"), c.ByTransaction(part, "no such")) == ["unknown", "unknown"]
    assert desk.ack(c.ByTransaction("00000000-0000-0000-0000-000000000000", "t0")) == ["unknown"]


def test_by_transaction_id_after_the_dedupe_window(desk: Desk) -> None:
    desk.configure(dedupe_seconds=10)
    desk.number(3)
    held = desk.claim(seconds=1000).deliveries
    desk.advance(500)
    desk.sweep()
    assert desk.ack(by_id(held[1])) == ["acked"]


def test_with_a_foreign_lease_a_transaction_id_is_refused(desk: Desk) -> None:
    desk.number(2)
    mine, yours = desk.take(), desk.take()
    assert desk.ack(by_id(mine, lease_id=yours.lease_id)) == ["stale"]
    assert desk.ack(by_id(mine, lease_id="L1-00000000")) == ["stale"]
    assert counts(desk.group()) == {"held": 2}


def test_a_second_settlement_says_already_and_changes_nothing(desk: Desk, held: list[Delivery]) -> None:
    desk.ack(held[0])
    desk.reject(held[1])
    before = desk.everything()
    for verb in (desk.ack, desk.retry, desk.reject, desk.release):
        assert verb(held[0], held[1]) == ["already", "already"]
    assert desk.everything() == before


def test_already_says_whether_it_was_an_ack(desk: Desk, held: list[Delivery]) -> None:
    acked, dead, retried, released, _ = held
    desk.ack(acked)
    desk.reject(dead)
    desk.retry(retried)
    desk.release(released)
    answers = desk.settle(*map(entry, held[:4]))
    assert [a.verdict for a in answers] == ["already"] * 4
    assert [a.unacked for a in answers] == [False, True, True, True]
    assert [a.unacked for a in desk.settle(entry(by_id(acked)), entry(by_id(dead)))] == [False, True]
    assert not any(a.unacked for a in desk.settle(*(entry(d, "retry") for d in held[:4])))
    # Somebody else has them now, and acks one: then it is.
    again = desk.claim().deliveries
    assert [a.unacked for a in desk.settle(entry(retried))] == [True]
    desk.ack(*again)
    assert [a.unacked for a in desk.settle(entry(retried), entry(released))] == [False, False]


@pytest.mark.parametrize("outcome", ["release", "retry", "reject"])
def test_a_lease_that_was_given_back_as_a_whole_says_that_an_ack_is_none(
    desk: Desk, held: list[Delivery], outcome: str
) -> None:
    whole = c.ByLease(held[0].lease_id)
    desk.settle(entry(whole, outcome))
    (answer,) = desk.settle(entry(whole))
    assert (answer.verdict, answer.unacked) == ("already", True)


def test_so_says_one_that_failed_as_a_whole_where_failures_rewind(desk: Desk) -> None:
    desk.configure(on_failure="rewind")
    desk.number(1)
    whole = c.ByLease(desk.take().lease_id)
    assert desk.retry(whole) == ["retried"]
    (answer,) = desk.settle(entry(whole))
    assert (answer.verdict, answer.unacked) == ("already", True)


def test_an_ack_in_the_call_that_rejects_the_message_is_none(desk: Desk, held: list[Delivery]) -> None:
    answers = desk.settle(entry(held[0], "reject"), entry(held[0]), entry(held[1]), entry(held[1]))
    assert [(a.verdict, a.unacked) for a in answers] == [
        ("dead", False),
        ("already", True),
        ("acked", False),
        ("already", False),
    ]


@pytest.mark.parametrize("rewind", [False, True])
def test_an_ack_of_what_was_dropped_is_none(desk: Desk, rewind: bool) -> None:
    """Where no dead letters are kept nothing is left that could be looked up."""
    how = {"on_failure": "rewind", "exclusivity": "partition"} if rewind else {}
    desk.configure(dead_letters=False, retry_limit=1, **how)
    desk.number(3)
    lease_id = (hand := desk.claim()).lease_id
    acked, dropped, third = hand.deliveries
    answers = desk.settle(entry(acked), entry(dropped, "retry"))
    assert [a.verdict for a in answers] == ["acked", "dead"]
    (both,) = [c.ByRange(lease_id, acked.lane, 0, 2)]
    for selector, unacked in (
        (acked, False),
        (dropped, True),
        (by_id(acked, lease_id=lease_id), False),
        (by_id(dropped, lease_id=lease_id), True),
        (both, True),
    ):
        (answer,) = desk.settle(entry(selector))
        assert (answer.verdict, answer.unacked) == ("already", unacked)
        (answer,) = desk.settle(entry(selector, "retry"))
        assert (answer.verdict, answer.unacked) == ("already", False), "the failure was recorded"
    desk.release(third)
    (alone,) = desk.claim().deliveries
    assert desk.reject(c.ByLease(alone.lease_id)) == ["dead"]
    answers = desk.settle(entry(alone), entry(c.ByLease(alone.lease_id)), entry(dropped), entry(acked))
    assert [(a.verdict, a.unacked) for a in answers] == [("already", unacked) for unacked in (True, True, True, False)]


def test_an_ack_in_the_call_that_drops_the_message_is_none(desk: Desk) -> None:
    desk.configure(dead_letters=False)
    desk.number(2)
    one, other = desk.claim().deliveries
    answers = desk.settle(entry(one, "reject"), entry(one), entry(other), entry(other))
    assert [(a.verdict, a.unacked) for a in answers] == [
        ("dead", False),
        ("already", True),
        ("acked", False),
        ("already", False),
    ]


def test_a_lease_that_failed_bit_by_bit_has_nothing_left_to_ack(desk: Desk, held: list[Delivery]) -> None:
    desk.retry(*held)
    (answer,) = desk.settle(entry(c.ByLease(held[0].lease_id)))
    assert (answer.verdict, answer.unacked) == ("already", False)


def test_a_transaction_id_without_a_lease_is_told_which_lease_ended(desk: Desk, held: list[Delivery]) -> None:
    answers = desk.settle(*(entry(by_id(one)) for one in held))
    assert [a.lease_id for a in answers if a.lease_ended] == [held[0].lease_id] * sum(a.lease_ended for a in answers)
    assert any(a.lease_ended for a in answers)


@pytest.mark.parametrize("outcome", ["ack", "retry", "reject", "release"])
@pytest.mark.parametrize("way", ["delivery", "ids", "ids without a lease", "lease"])
@pytest.mark.parametrize("on_failure", ["skip", "rewind"])
def test_who_repeats_a_settlement_is_told_as_well_that_it_ended_the_lease(
    desk: Desk, held: list[Delivery], on_failure: str, way: str, outcome: str
) -> None:
    desk.configure(on_failure=on_failure)
    named: dict[str, list[c.Selector]] = {
        "delivery": [c.ByDelivery(one.id) for one in held],
        "ids": [by_id(one, lease_id=one.lease_id) for one in held],
        "ids without a lease": [by_id(one) for one in held],
        "lease": [c.ByLease(held[0].lease_id)],
    }
    entries = [entry(one, outcome) for one in named[way]]
    if way != "lease":
        assert not any(one.lease_ended for one in desk.settle(*map(entry, named[way][:2])))
        entries = entries[2:]
        again = desk.settle(*map(entry, named[way][:2]))
        assert [(one.verdict, one.lease_ended) for one in again] == [("already", False)] * 2
    assert any(one.lease_ended for one in desk.settle(*entries))
    before = desk.everything()
    answers = desk.settle(*entries)
    if way != "ids without a lease":
        rewound = way == "lease" and on_failure == "rewind" and outcome in ("retry", "reject")
        assert answers[0].verdict == ("stale" if rewound else "already"), "only its first failed, the rest went along"
        assert [one.lease_ended for one in answers] == [one.verdict == "already" for one in answers]
    else:
        assert not any(one.lease_ended for one in answers), "of which lease?"
    assert desk.everything() == before


def test_a_refusal_does_not_say_that_a_lease_ended_which_was_taken_away(desk: Desk, held: list[Delivery]) -> None:
    """Somebody may still work on what was taken away."""
    desk.ack(held[0])
    desk.advance(1000)
    desk.sweep()
    assert [(one.verdict, one.lease_ended) for one in desk.settle(*map(entry, held))] == [
        ("already", False),
        *[("stale", False)] * 4,
    ]
    again = desk.claim().deliveries
    desk.ack(again[0])
    desk.release(c.ByLease(again[0].lease_id))
    assert [one.lease_ended for one in desk.settle(*map(entry, again))] == [False] * 4


def test_twice_in_one_call_counts_once(desk: Desk, held: list[Delivery]) -> None:
    assert desk.ack(held[0], held[0]) == ["acked", "already"]
    assert desk.ack(by_id(held[1]), held[1]) == ["acked", "already"]
    assert desk.ack(c.ByLease(held[0].lease_id), held[4]) == ["acked", "already"]


def test_a_late_settlement_is_stale_and_never_touches_the_new_holder(desk: Desk) -> None:
    desk.number(2)
    old = desk.claim(seconds=5).deliveries
    desk.advance(5)
    assert desk.ack(*old) == ["stale", "stale"]
    new = desk.claim().deliveries
    assert desk.ack(*old, c.ByLease(old[0].lease_id)) == ["stale"] * 3
    assert desk.reject(c.ByRange(old[0].lease_id, old[0].lane, 0, 9)) == ["stale"]
    assert counts(desk.group()) == {"held": 2}
    assert desk.ack(*new) == ["acked", "acked"]


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "no delivery",
        "L1-00000000.1.0",
        "Lzzzz-0badcafe.1.0",
        c.ByLease(""),
        c.ByLease("L1-00000000"),
        c.ByRange("L1-00000000", 1, 0, 5),
        c.ByTransaction("nowhere", "t0"),
    ],
)
def test_ids_that_were_never_given_out_are_unknown(
    desk: Desk, held: list[Delivery], selector: str | c.Selector
) -> None:
    before = desk.everything()
    assert desk.ack(selector) == ["unknown"]
    assert desk.everything() == before


def test_a_delivery_of_another_place_is_unknown(desk: Desk, held: list[Delivery]) -> None:
    lease, lane, _ = held[0].id.split(".")
    assert desk.ack(f"{lease}.{lane}.z", f"{lease}.zz.0") == ["unknown", "unknown"]
    assert desk.ack(c.ByRange(held[0].lease_id, held[0].lane + 1, 0, 5)) == ["unknown"]
    assert desk.ack(c.ByRange(held[0].lease_id, held[0].lane, 5, 9)) == ["unknown"]


def test_an_empty_call_is_answered_empty(desk: Desk) -> None:
    assert desk.settle() == []
    assert desk.settle(atomic=True) == []
