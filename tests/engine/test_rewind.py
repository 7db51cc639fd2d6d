"""on_failure=rewind: an ack is up to there, a failure sends back everything from there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackwise.core import commands as c
from ackwise.core.errors import RolledBack
from ackwise.core.messages import NewMessage
from tests.engine.store_harness import Delivery, StoreHarness, counts, entry


@pytest.fixture
def held(harness: StoreHarness) -> list[Delivery]:
    harness.configure(on_failure="rewind", exclusivity="partition", retry_limit=3)
    harness.number(6)
    return harness.claim(6).deliveries


def verdicts(harness: StoreHarness, *entries: tuple[Delivery, str]) -> list[str]:
    return [s.verdict.value for s in harness.settle(*(entry(d, outcome) for d, outcome in entries))]


def test_ack_is_up_to_its_message(harness: StoreHarness, held: list[Delivery]) -> None:
    assert harness.ack(held[3]) == ["acked"]
    assert counts(harness.group()) == {"acked": 4, "held": 2}
    assert harness.ack(held[1]) == ["already"]
    assert harness.ack(held[5]) == ["acked"]
    assert counts(harness.group()) == {"acked": 6}


@pytest.mark.parametrize(("outcome", "verdict", "failures"), [("retry", "retried", 1), ("release", "released", 0)])
def test_failure_returns_everything_from_it(
    harness: StoreHarness, held: list[Delivery], outcome: str, verdict: str, failures: int
) -> None:
    assert verdicts(harness, (held[1], "ack"), (held[2], outcome)) == ["acked", verdict]
    assert counts(harness.group()) == {"acked": 2, "held": 4}
    again = harness.claim(9)
    assert [(d.body, d.failures) for d in again.deliveries] == [("2", failures), ("3", 0), ("4", 0), ("5", 0)]


def test_rejected_message_dies_and_what_is_after_it_returns(harness: StoreHarness, held: list[Delivery]) -> None:
    assert verdicts(harness, (held[0], "reject")) == ["dead"]
    assert harness.claim(9).bodies == ["1", "2", "3", "4", "5"]
    assert counts(harness.group()) == {"dead": 1, "held": 5}


def test_acks_above_the_failure_answer_success_and_come_back(harness: StoreHarness, held: list[Delivery]) -> None:
    got = verdicts(harness, (held[4], "ack"), (held[2], "retry"), (held[0], "ack"), (held[3], "ack"))
    assert got == ["acked", "retried", "acked", "acked"]
    assert counts(harness.group()) == {"acked": 1, "held": 5}
    assert [(d.body, d.failures) for d in harness.claim(9).deliveries] == [
        ("1", 0), ("2", 1), ("3", 0), ("4", 0), ("5", 0),
    ]  # fmt: skip


def test_rewind_charges_the_lowest_failure_only(harness: StoreHarness, held: list[Delivery]) -> None:
    got = verdicts(harness, (held[5], "reject"), (held[3], "retry"), (held[1], "retry"))
    assert got[2] == "retried"
    assert harness.dead() == []
    assert [d.failures for d in harness.claim(9).deliveries] == [0, 1, 0, 0, 0, 0]


def test_lease_ends_with_a_failure(harness: StoreHarness, held: list[Delivery]) -> None:
    verdicts(harness, (held[0], "retry"))
    assert harness.group().leases == 0
    assert set(harness.ack(*held)) <= {"already", "stale"}
    assert counts(harness.group()) == {"held": 6}


def test_repeated_failure_changes_nothing(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.ack(held[2])
    assert verdicts(harness, (held[1], "retry"), (held[3], "ack")) == ["already", "acked"]
    assert counts(harness.group()) == {"acked": 4, "held": 2}
    assert harness.group().leases == 1


def test_late_call_is_refused_as_a_whole(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.advance(30)
    assert verdicts(harness, (held[0], "retry"), (held[1], "ack"), (held[2], "reject")) == ["stale"] * 3
    assert counts(harness.group()) == {"held": 6}


def test_limit_holds_with_retries_counting(harness: StoreHarness) -> None:
    harness.configure(
        on_failure="rewind", exclusivity="partition", retry_limit=1, retry_counting="retries", expiry_counts=False
    )
    harness.number(2)
    assert verdicts(harness, (harness.claim().deliveries[0], "retry")) == ["retried"]
    assert verdicts(harness, (harness.claim().deliveries[0], "retry")) == ["dead"]
    assert [(d.body, d.failures) for d in harness.claim().deliveries] == [("1", 0)]


def test_other_partitions_of_the_lease_go_on(harness: StoreHarness) -> None:
    harness.configure(on_failure="rewind")
    for name in ("p1", "p2"):
        harness.push("0", "1", "2", partition=name)
    hand = harness.claim(6)
    one, two = hand.deliveries[:3], hand.deliveries[3:]
    assert verdicts(harness, (one[0], "retry"), (two[0], "ack")) == ["retried", "acked"]
    assert harness.ack(two[2]) == ["acked"]
    assert counts(harness.group()) == {"acked": 3, "held": 3}


def test_rewind_of_one_partition_does_not_tell_an_end(harness: StoreHarness) -> None:
    harness.configure(on_failure="rewind")
    for name in ("p1", "p2"):
        harness.push("0", "1", partition=name)
    first, behind, *others = harness.claim(4).deliveries
    answers = harness.settle(entry(first, "retry"), entry(behind))
    assert [(a.verdict, a.count, a.lease_ended) for a in answers] == [("retried", 1, False), ("acked", 0, False)]
    assert harness.ack(*others) == ["acked", "acked"]


def test_ack_and_retry_of_one_message_make_a_retry(harness: StoreHarness, held: list[Delivery]) -> None:
    assert verdicts(harness, (held[1], "ack"), (held[1], "retry"), (held[0], "ack")) == ["acked", "retried", "acked"]
    assert counts(harness.group()) == {"acked": 1, "held": 5}
    assert [(d.body, d.failures) for d in harness.claim(9).deliveries][:2] == [("1", 1), ("2", 0)]


def test_rejected_lease_names_what_died_of_it(harness: StoreHarness) -> None:
    harness.configure(on_failure="rewind", exclusivity="partition")
    for name in ("a", "b"):
        harness.push("0", "1", "2", partition=name)
    lease = harness.claim(6)
    (settled,) = harness.settle(entry(c.ByLease(lease.lease_id), "reject"))
    assert (settled.count, settled.dead, settled.lease_ended) == (6, 2, True)
    assert sorted(settled.dead_ids) == sorted(letter.id for letter in harness.dead())
    assert sorted(harness.claim(9).bodies) == ["1", "1", "2", "2"]
    (again,) = harness.settle(entry(c.ByLease(lease.lease_id), "reject"))
    assert (again.verdict.settled, again.count, again.dead_ids) == (False, 0, [])


def by_delivery(delivery: Delivery) -> c.ByDelivery:
    return c.ByDelivery(delivery.id)


def by_ids(delivery: Delivery) -> c.ByTransaction:
    return c.ByTransaction(delivery.partition_id, delivery.transaction_id, lease_id=delivery.lease_id)


def strictly(settlements: list[c.Settlement], *txids: str) -> c.Transaction:
    push = c.Push(queue="out", messages=[NewMessage(b"{}", transaction_id=txid) for txid in txids])
    pushes = [push] if txids else []
    return c.Transaction(
        settlements=settlements, pushes=pushes, on_duplicate="fail", on_already="fail", repeatable=True
    )


@pytest.mark.parametrize("named", [by_delivery, by_ids])
@pytest.mark.parametrize("later", ["at once", "after the next has it"])
@pytest.mark.parametrize("outcome", ["retry", "release", "reject"])
def test_transaction_that_sent_messages_back_finds_itself_done(
    harness: StoreHarness, held: list[Delivery], outcome: str, later: str, named: Callable[[Delivery], c.Selector]
) -> None:
    what = [named(one) for one in held]
    asks = [entry(what[1]), entry(what[2], outcome), entry(what[3]), entry(what[4], "retry")]
    done = harness.do(strictly(asks, "a"))
    assert [answer.verdict.settled for answer in done.settled] == [True] * 4
    if later != "at once":
        harness.claim(9)
    before = harness.everything()
    for settlements, txids in ((asks, ["a"]), (asks[::-1], ["a"]), (asks, [])):
        again = harness.do(strictly(settlements, *txids))
        assert [answer.verdict for answer in again.settled] == ["already"] * 4
        assert [one.status for pushed in again.pushed for one in pushed] == ["duplicate"] * len(txids)
    for settlements, txids in (
        (asks, ["a", "b"]),
        ([*asks, entry(what[0], "retry"), entry(c.ByDelivery("L1-00000000.1.0"))], ["a"]),
        ([asks[0], asks[2]], ["a"]),
        ([asks[2], entry(what[4], "retry")], ["a"]),
    ):
        with pytest.raises(RolledBack):
            harness.do(strictly(settlements, *txids))
    assert harness.everything() == before


def test_transaction_that_released_whole_lease_is_done(harness: StoreHarness, held: list[Delivery]) -> None:
    again = strictly([entry(c.ByLease(held[0].lease_id), "retry")], "a")
    harness.do(again)
    before = harness.everything()
    assert [answer.verdict for answer in harness.do(again).settled] == ["already"]
    assert harness.everything() == before


def test_transaction_acking_rewound_messages_rolls_back(harness: StoreHarness, held: list[Delivery]) -> None:
    harness.ack(held[0])
    harness.retry(held[1])
    before = harness.everything()
    for asks in (
        [entry(c.ByLease(held[0].lease_id))],
        [entry(c.ByLease(held[0].lease_id), "retry")],
        [entry(held[0], "retry"), entry(held[2])],
    ):
        with pytest.raises(RolledBack):
            harness.do(strictly(asks))
    assert harness.everything() == before


@pytest.mark.parametrize("rewinds", [True, False])
def test_repeat_after_an_expired_lease_is_not_done_before(
    harness: StoreHarness, held: list[Delivery], rewinds: bool
) -> None:
    """Its lease was lost, so this transaction was not done before: neither when nothing of it failed, nor where a
    failure sends nothing back."""
    if not rewinds:
        harness.configure(on_failure="skip")
        harness.retry(held[0])
    else:
        harness.ack(held[0])
    harness.advance(1000)
    harness.sweep("expire")
    before = harness.everything()
    with pytest.raises(RolledBack, match="settlement 0 was refused as already"):
        harness.do(strictly([entry(held[0], "retry"), entry(held[1])]))
    assert harness.everything() == before
