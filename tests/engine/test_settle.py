"""Settle: what an entry can name, what is answered, and that it happens once."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core.messages import QUEUE_MODE
from tests.engine.store_harness import Delivery, StoreHarness, counts, entry


@pytest.fixture
def held(harness: StoreHarness) -> list[Delivery]:
    harness.number(5)
    return harness.claim().deliveries


def by_id(delivery: Delivery, **rest: Any) -> c.ByTransaction:
    return c.ByTransaction(delivery.partition_id, delivery.transaction_id, **rest)


def test_ack_in_the_middle_leaves_the_rest_held(harness: StoreHarness, held: list[Delivery]) -> None:
    (answer,) = harness.settle(entry(held[2]))
    assert (answer.verdict, answer.count, answer.lease_ended) == ("acked", 1, False)
    assert counts(harness.group()) == {"acked": 1, "held": 4}
    assert harness.states() == ["leased", "leased", "acked", "leased", "leased"]


def test_acks_in_any_order_end_the_lease(harness: StoreHarness, held: list[Delivery]) -> None:
    answers = [harness.settle(entry(held[i]))[0] for i in (3, 0, 4, 1, 2)]
    assert [a.lease_ended for a in answers] == [False] * 4 + [True]
    assert counts(harness.group()) == {"acked": 5}
    assert harness.group().leases == 0


def test_neighbours_in_one_call_are_settled_together(harness: StoreHarness, held: list[Delivery]) -> None:
    answers = harness.settle(*(entry(d) for d in held))
    assert [(a.verdict, a.count) for a in answers] == [("acked", 1)] * 5
    assert answers[-1].lease_ended


def test_neighbours_in_one_call_answer_their_failures(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.retry(c.ByRange(held[0].lease_id, held[0].lane, 0, 3))
    again = harness.claim().deliveries
    assert [a.failures for a in harness.settle(*map(entry, again))] == [1, 1, 1]


def test_settle_answers_all_report_the_end_of_the_lease(harness: StoreHarness) -> None:
    for name in "ab":
        harness.push("1", "2", "3", partition=name)
    first, second, *rest = harness.claim().deliveries
    harness.ack(first)
    answers = harness.settle(entry(first), entry(rest[3], "retry"), *map(entry, rest[:3]), entry(second), entry(second))
    assert [a.verdict.value for a in answers] == ["already", "retried", *["acked"] * 4, "already"]
    assert all(a.lease_ended for a in answers)


@pytest.mark.parametrize(
    ("order", "verdicts"),
    [
        ([4, 3, 2, 1, 0], ["acked"] * 5),
        ([2, 4, 0, 3, 1], ["acked"] * 5),
        ([3, 1, 3, 0, 1], ["acked", "acked", "already", "acked", "already"]),
    ],
)
def test_acks_of_a_call_settle_in_any_order(
    harness: StoreHarness, held: list[Delivery], order: list[int], verdicts: list[str]
) -> None:
    """Each is answered where it stands; the one that is named twice is already settled the second time."""
    answers = harness.settle(*(entry(held[at]) for at in order))
    assert [a.verdict for a in answers] == verdicts
    assert [a.count for a in answers if a.verdict == "acked"] == [1] * len(set(order))
    assert answers[-1].lease_ended == (len(set(order)) == 5)
    assert harness.states() == ["acked" if at in order else "leased" for at in range(5)]


def test_acks_that_overlap_in_one_call_keep_their_order(harness: StoreHarness, held: list[Delivery]) -> None:
    """The single one comes first, and so the range has one less."""
    some = c.ByRange(held[0].lease_id, held[0].lane, 1, 4)
    answers = harness.settle(entry(held[4]), entry(held[2]), entry(some), entry(held[0]))
    assert [(a.verdict, a.count) for a in answers] == [("acked", 1), ("acked", 1), ("acked", 2), ("acked", 1)]
    assert answers[-1].lease_ended


def test_ids_that_only_begin_like_another_name_nothing(harness: StoreHarness, held: list[Delivery]) -> None:
    """Of many ids what they share is looked at once, and what follows is not taken on trust."""
    head = held[0].id.rpartition(".")[0]
    odd = [f"{head}.{tail}" for tail in ("", "-1", "+1", "1 ", "A", "1_0", "zzzz", "9" * 13, "²")]
    answers = harness.settle(entry(held[0]), *(entry(one) for one in odd), entry(held[1]))
    assert [a.verdict for a in answers] == ["acked", *["unknown"] * len(odd), "acked"]


def test_mixed_outcomes_in_one_call(harness: StoreHarness, held: list[Delivery]) -> None:
    answers = harness.settle(
        entry(held[0], "ack"),
        entry(held[1], "retry"),
        entry(held[2], "reject", error="no good"),
        entry(held[3], "release"),
        entry(held[4], "ack"),
    )
    assert [a.verdict for a in answers] == ["acked", "retried", "dead", "released", "acked"]
    assert counts(harness.group()) == {"acked": 2, "dead": 1, "held": 2}
    assert harness.states() == ["acked", "waiting", "dead", "waiting", "acked"]


def test_range_of_a_lease_is_settled(harness: StoreHarness, held: list[Delivery]) -> None:
    (answer,) = harness.settle(entry(c.ByRange(held[0].lease_id, held[0].lane, 1, 4)))
    assert (answer.verdict, answer.count) == ("acked", 3)
    assert harness.states() == ["leased", "acked", "acked", "acked", "leased"]


def test_range_settles_what_is_outstanding_in_it(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.ack(held[1], held[2])
    whole = c.ByRange(held[0].lease_id, held[0].lane, 0, 1000)
    (answer,) = harness.settle(entry(whole, "release"))
    assert (answer.verdict, answer.count, answer.lease_ended) == ("released", 3, True)
    assert harness.ack(whole) == ["already"]


def test_whole_lease_over_several_lanes(harness: StoreHarness) -> None:
    for name in "abc":
        harness.push("1", "2", partition=name)
    hand = harness.claim()
    harness.ack(hand.deliveries[0])
    (answer,) = harness.settle(entry(c.ByLease(hand.lease_id)))
    assert (answer.verdict, answer.count, answer.lease_ended) == ("acked", 5, True)
    assert counts(harness.group()) == {"acked": 6}


def test_transaction_id_with_its_lease_settles(harness: StoreHarness, held: list[Delivery]) -> None:
    assert harness.ack(by_id(held[1], lease_id=held[1].lease_id)) == ["acked"]
    assert harness.states()[1] == "acked"


def test_transaction_id_settles_the_current_delivery(harness: StoreHarness, held: list[Delivery]) -> None:
    assert harness.ack(by_id(held[1])) == ["acked"]
    assert harness.ack(by_id(held[1])) == ["already"]


def test_minted_transaction_id_settles(harness: StoreHarness) -> None:
    harness.push("a")
    got = harness.take()
    assert harness.ack(by_id(got)) == ["acked"]


def test_transaction_id_uses_group_of_lease_or_default(harness: StoreHarness) -> None:
    harness.number(1)
    default, named = harness.take(), harness.take(group="g")
    assert harness.ack(by_id(named, lease_id=named.lease_id)) == ["acked"]
    assert counts(harness.group("g")) == {"acked": 1}
    assert counts(harness.group(QUEUE_MODE)) == {"held": 1}
    assert harness.ack(by_id(default)) == ["acked"]
    assert counts(harness.group(QUEUE_MODE)) == {"acked": 1}
    assert harness.ack(by_id(default, group="missing")) == ["unknown"]


def test_transaction_id_of_unheld_message(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.release(held[0])
    assert harness.ack(by_id(held[0])) == ["stale"]
    assert harness.ack(by_id(held[0], lease_id=held[0].lease_id)) == ["stale"]


def test_repeated_failure_by_transaction_id_is_already(harness: StoreHarness, held: list[Delivery]) -> None:
    failed, released, _, _, lost = [by_id(one, lease_id=one.lease_id) for one in held]
    assert (harness.retry(failed), harness.release(released)) == (["retried"], ["released"])
    before = harness.everything()
    assert (harness.retry(failed), harness.release(released)) == (["already"], ["already"])
    assert harness.everything() == before
    again = {one.seq: one for one in harness.claim().deliveries}
    assert (harness.retry(failed), again[0].failures) == (["already"], 1), "another claim holds it, and keeps it"
    assert harness.ack(failed, by_id(again[0], lease_id=again[0].lease_id)) == ["stale", "acked"]
    harness.advance(10_000)
    harness.sweep()
    assert harness.retry(lost) == ["stale"], "it ran out"
    assert harness.retry(by_id(held[4], lease_id=held[4].lease_id, group="g")) == ["unknown"]


def test_fenced_message_by_transaction_id_is_stale_at_once(harness: StoreHarness, held: list[Delivery]) -> None:
    failed, released, acked, dead, _ = [by_id(one, lease_id=one.lease_id, fenced=True) for one in held]
    assert (harness.retry(failed), harness.release(released)) == (["retried"], ["released"])
    assert (harness.ack(acked), harness.reject(dead)) == (["acked"], ["dead"])
    before = harness.everything()
    assert (harness.retry(failed), harness.release(released), harness.ack(failed)) == (["stale"], ["stale"], ["stale"])
    assert (harness.retry(acked), harness.reject(dead)) == (["already"], ["already"]), "what ended has ended"
    assert harness.everything() == before
    harness.claim()
    assert harness.retry(failed) == ["stale"], "another claim holds it"


def test_transaction_id_never_handed_out_is_unknown(harness: StoreHarness) -> None:
    harness.number(2)
    got = harness.take()
    part = got.partition_id
    assert harness.ack(c.ByTransaction(part, "t1"), c.ByTransaction(part, "no such")) == ["unknown", "unknown"]
    assert harness.ack(c.ByTransaction("00000000-0000-0000-0000-000000000000", "t0")) == ["unknown"]


def test_transaction_id_after_the_dedupe_window_settles(harness: StoreHarness) -> None:
    harness.configure(dedupe_seconds=10)
    harness.number(3)
    held = harness.claim(seconds=1000).deliveries
    harness.advance(500)
    harness.sweep()
    assert harness.ack(by_id(held[1])) == ["acked"]


def test_transaction_id_with_a_foreign_lease_is_stale(harness: StoreHarness) -> None:
    harness.number(2)
    mine, yours = harness.take(), harness.take()
    assert harness.ack(by_id(mine, lease_id=yours.lease_id)) == ["stale"]
    assert harness.ack(by_id(mine, lease_id="L1-00000000")) == ["stale"]
    assert counts(harness.group()) == {"held": 2}


def test_second_settlement_says_already_and_changes_nothing(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.ack(held[0])
    harness.reject(held[1])
    before = harness.everything()
    for verb in (harness.ack, harness.retry, harness.reject, harness.release):
        assert verb(held[0], held[1]) == ["already", "already"]
    assert harness.everything() == before


def test_verdict_already_says_whether_it_was_an_ack(harness: StoreHarness, held: list[Delivery]) -> None:
    acked, dead, retried, released, _ = held
    harness.ack(acked)
    harness.reject(dead)
    harness.retry(retried)
    harness.release(released)
    answers = harness.settle(*map(entry, held[:4]))
    assert [a.verdict for a in answers] == ["already"] * 4
    assert [a.unacked for a in answers] == [False, True, True, True]
    assert [a.unacked for a in harness.settle(entry(by_id(acked)), entry(by_id(dead)))] == [False, True]
    assert not any(a.unacked for a in harness.settle(*(entry(d, "retry") for d in held[:4])))
    # Another lease holds them now and acks one: then it is.
    again = harness.claim().deliveries
    assert [a.unacked for a in harness.settle(entry(retried))] == [True]
    harness.ack(*again)
    assert [a.unacked for a in harness.settle(entry(retried), entry(released))] == [False, False]


@pytest.mark.parametrize("outcome", ["release", "retry", "reject"])
def test_ack_after_whole_release_is_refused(harness: StoreHarness, held: list[Delivery], outcome: str) -> None:
    whole = c.ByLease(held[0].lease_id)
    harness.settle(entry(whole, outcome))
    (answer,) = harness.settle(entry(whole))
    assert (answer.verdict, answer.unacked) == ("already", True)


def test_ack_after_whole_lease_rewound_is_refused(harness: StoreHarness) -> None:
    harness.configure(on_failure="rewind")
    harness.number(1)
    whole = c.ByLease(harness.take().lease_id)
    assert harness.retry(whole) == ["retried"]
    (answer,) = harness.settle(entry(whole))
    assert (answer.verdict, answer.unacked) == ("already", True)


def test_ack_in_the_call_that_rejects_the_message_is_none(harness: StoreHarness, held: list[Delivery]) -> None:
    answers = harness.settle(entry(held[0], "reject"), entry(held[0]), entry(held[1]), entry(held[1]))
    assert [(a.verdict, a.unacked) for a in answers] == [
        ("dead", False),
        ("already", True),
        ("acked", False),
        ("already", False),
    ]


@pytest.mark.parametrize("rewind", [False, True])
def test_ack_of_what_was_dropped_is_none(harness: StoreHarness, rewind: bool) -> None:
    """Where no dead letters are kept nothing is left that could be looked up."""
    how = {"on_failure": "rewind", "exclusivity": "partition"} if rewind else {}
    harness.configure(dead_letters=False, retry_limit=1, **how)
    harness.number(3)
    lease_id = (hand := harness.claim()).lease_id
    acked, dropped, third = hand.deliveries
    answers = harness.settle(entry(acked), entry(dropped, "retry"))
    assert [a.verdict for a in answers] == ["acked", "dead"]
    (both,) = [c.ByRange(lease_id, acked.lane, 0, 2)]
    for selector, unacked in (
        (acked, False),
        (dropped, True),
        (by_id(acked, lease_id=lease_id), False),
        (by_id(dropped, lease_id=lease_id), True),
        (both, True),
    ):
        (answer,) = harness.settle(entry(selector))
        assert (answer.verdict, answer.unacked) == ("already", unacked)
        (answer,) = harness.settle(entry(selector, "retry"))
        assert (answer.verdict, answer.unacked) == ("already", False), "the failure was recorded"
    harness.release(third)
    (alone,) = harness.claim().deliveries
    assert harness.reject(c.ByLease(alone.lease_id)) == ["dead"]
    answers = harness.settle(entry(alone), entry(c.ByLease(alone.lease_id)), entry(dropped), entry(acked))
    assert [(a.verdict, a.unacked) for a in answers] == [("already", unacked) for unacked in (True, True, True, False)]


def test_ack_in_the_call_that_drops_the_message_is_none(harness: StoreHarness) -> None:
    harness.configure(dead_letters=False)
    harness.number(2)
    one, other = harness.claim().deliveries
    answers = harness.settle(entry(one, "reject"), entry(one), entry(other), entry(other))
    assert [(a.verdict, a.unacked) for a in answers] == [
        ("dead", False),
        ("already", True),
        ("acked", False),
        ("already", False),
    ]


def test_lease_that_failed_bit_by_bit_has_nothing_left_to_ack(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.retry(*held)
    (answer,) = harness.settle(entry(c.ByLease(held[0].lease_id)))
    assert (answer.verdict, answer.unacked) == ("already", False)


def test_transaction_id_without_lease_names_ended_lease(harness: StoreHarness, held: list[Delivery]) -> None:
    answers = harness.settle(*(entry(by_id(one)) for one in held))
    assert [a.lease_id for a in answers if a.lease_ended] == [held[0].lease_id] * sum(a.lease_ended for a in answers)
    assert any(a.lease_ended for a in answers)


@pytest.mark.parametrize("outcome", ["ack", "retry", "reject", "release"])
@pytest.mark.parametrize("way", ["delivery", "ids", "ids without a lease", "lease"])
@pytest.mark.parametrize("on_failure", ["skip", "rewind"])
def test_repeated_settlement_names_lease_it_ended(
    harness: StoreHarness, held: list[Delivery], on_failure: str, way: str, outcome: str
) -> None:
    harness.configure(on_failure=on_failure)
    named: dict[str, list[c.Selector]] = {
        "delivery": [c.ByDelivery(one.id) for one in held],
        "ids": [by_id(one, lease_id=one.lease_id) for one in held],
        "ids without a lease": [by_id(one) for one in held],
        "lease": [c.ByLease(held[0].lease_id)],
    }
    entries = [entry(one, outcome) for one in named[way]]
    if way != "lease":
        assert not any(one.lease_ended for one in harness.settle(*map(entry, named[way][:2])))
        entries = entries[2:]
        again = harness.settle(*map(entry, named[way][:2]))
        assert [(one.verdict, one.lease_ended) for one in again] == [("already", False)] * 2
    assert any(one.lease_ended for one in harness.settle(*entries))
    before = harness.everything()
    answers = harness.settle(*entries)
    if way != "ids without a lease":
        rewound = way == "lease" and on_failure == "rewind" and outcome in ("retry", "reject")
        assert answers[0].verdict == ("stale" if rewound else "already"), "only its first failed, the rest went along"
        assert [one.lease_ended for one in answers] == [one.verdict == "already" for one in answers]
    else:
        assert not any(one.lease_ended for one in answers), "of which lease?"
    assert harness.everything() == before


def test_refusal_of_lost_lease_does_not_say_it_ended(harness: StoreHarness, held: list[Delivery]) -> None:
    """A consumer may still work on the messages that the lease lost."""
    harness.ack(held[0])
    harness.advance(1000)
    harness.sweep()
    assert [(one.verdict, one.lease_ended) for one in harness.settle(*map(entry, held))] == [
        ("already", False),
        *[("stale", False)] * 4,
    ]
    again = harness.claim().deliveries
    harness.ack(again[0])
    harness.release(c.ByLease(again[0].lease_id))
    assert [one.lease_ended for one in harness.settle(*map(entry, again))] == [False] * 4


def test_settlement_twice_in_a_call_counts_once(harness: StoreHarness, held: list[Delivery]) -> None:
    assert harness.ack(held[0], held[0]) == ["acked", "already"]
    assert harness.ack(by_id(held[1]), held[1]) == ["acked", "already"]
    assert harness.ack(c.ByLease(held[0].lease_id), held[4]) == ["acked", "already"]


def test_late_settlement_is_stale_and_spares_new_holder(harness: StoreHarness) -> None:
    harness.number(2)
    old = harness.claim(seconds=5).deliveries
    harness.advance(5)
    assert harness.ack(*old) == ["stale", "stale"]
    new = harness.claim().deliveries
    assert harness.ack(*old, c.ByLease(old[0].lease_id)) == ["stale"] * 3
    assert harness.reject(c.ByRange(old[0].lease_id, old[0].lane, 0, 9)) == ["stale"]
    assert counts(harness.group()) == {"held": 2}
    assert harness.ack(*new) == ["acked", "acked"]


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
    harness: StoreHarness, held: list[Delivery], selector: str | c.Selector
) -> None:
    before = harness.everything()
    assert harness.ack(selector) == ["unknown"]
    assert harness.everything() == before


def test_delivery_of_another_place_is_unknown(harness: StoreHarness, held: list[Delivery]) -> None:
    lease, lane, _ = held[0].id.split(".")
    assert harness.ack(f"{lease}.{lane}.z", f"{lease}.zz.0") == ["unknown", "unknown"]
    assert harness.ack(c.ByRange(held[0].lease_id, held[0].lane + 1, 0, 5)) == ["unknown"]
    assert harness.ack(c.ByRange(held[0].lease_id, held[0].lane, 5, 9)) == ["unknown"]


def test_empty_call_is_answered_empty(harness: StoreHarness) -> None:
    assert harness.settle() == []
    assert harness.settle(atomic=True) == []
