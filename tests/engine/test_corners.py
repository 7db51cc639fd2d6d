"""Corners where rules meet: each of these was wrong once."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from ackwise.core.messages import QUEUE_MODE, NewMessage, PlainBatch
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from tests.engine.store_harness import StoreHarness, entry


def test_expired_queue_lease_does_not_hide_a_live_one(harness: StoreHarness) -> None:
    harness.push(*map(str, range(3)))
    harness.claim(1, exclusivity="queue", seconds=10)
    harness.advance(10)
    claims = [c.Claim(queue="q", most=1, exclusivity=kind, owner=kind) for kind in ("queue", "none")]
    first, second = harness.together(*claims)
    assert (first.count, second.count) == (1, 0)
    assert second.empty == "locked"


def test_priority_is_found_behind_many_ready_lanes(harness: StoreHarness) -> None:
    harness.send([NewMessage(b"other", partition=f"p{i}") for i in range(60)])
    harness.push("mine", priority=5, partition="p59")
    assert harness.claim(priorities=(5,)).bodies == ["mine"]


def test_lanes_beside_an_exclusive_hold_wait_and_come_back(harness: StoreHarness) -> None:
    harness.configure(exclusivity="partition")
    harness.push("urgent", partition="a", priority=0)
    harness.push("later", partition="a", priority=1)
    held = harness.claim(1)
    assert held.bodies == ["urgent"]
    assert (harness.claim().why, harness.claim().why) == ("locked", "locked")
    harness.push("elsewhere", partition="b")
    assert harness.claim(1).bodies == ["elsewhere"]
    harness.ack(held.deliveries[0])
    assert harness.claim(1).bodies == ["later"]


def test_owner_finds_the_free_lanes_of_its_own_partition(harness: StoreHarness) -> None:
    harness.configure(exclusivity="partition")
    harness.push("urgent", partition="a", priority=0)
    harness.push("later", partition="a", priority=1)
    assert harness.claim(1, owner="me").bodies == ["urgent"]
    assert harness.claim(1, owner="you").why == "locked"
    assert harness.claim(1, owner="me").bodies == ["later"]


def test_minted_transaction_ids_are_found_anywhere_in_push(harness: StoreHarness) -> None:
    receipts = harness.push(*map(str, range(5)))
    hand = harness.claim()
    selectors = [c.ByTransaction(r.partition_id, r.transaction_id) for r in receipts]
    assert harness.ack(*selectors) == ["acked"] * 5
    assert harness.ack(*selectors) == ["already"] * 5
    assert len(hand) == 5
    again = [harness.push("copy", txid=r.transaction_id)[0].status for r in receipts]
    assert again == ["duplicate"] * 5


def test_shorter_delay_takes_effect_at_once(harness: StoreHarness) -> None:
    harness.configure(delay_seconds=3600)
    harness.do(c.ConfigureGroup(queue="q", group=QUEUE_MODE))
    harness.push("a")
    assert harness.claim().why == "delayed"
    harness.configure(delay_seconds=0)
    assert harness.claim().bodies == ["a"]


def test_failed_lease_says_how_many_died(harness: StoreHarness) -> None:
    harness.configure(retry_limit=2)
    harness.push("old")
    harness.retry(harness.take())
    harness.push("new")
    hand = harness.claim()
    (answer,) = harness.settle(entry(c.ByLease(hand.lease_id), "retry"))
    assert (answer.verdict, answer.count, answer.dead) == ("retried", 2, 1)
    (answer,) = harness.settle(entry(c.ByLease(harness.claim().lease_id), "retry"))
    assert (answer.verdict, answer.count, answer.dead, answer.reason) == ("dead", 1, 1, "retry_limit")


def test_large_leases_expire_together(harness: StoreHarness) -> None:
    harness.configure(exclusivity="none")
    harness.push(*map(str, range(300)))
    for _ in range(3):
        harness.claim(100, seconds=1)
    harness.advance(1)
    assert harness.sweep("expire", limit=100) == {"expire": 3}
    assert harness.group().leases == 0


def test_locked_tells_the_earlier_of_both(harness: StoreHarness) -> None:
    harness.configure(exclusivity="partition", lease_seconds=300)
    harness.push("a", partition="a")
    harness.push("b", partition="b")
    harness.retry(harness.take(partitions=("b",)), delay=1)
    harness.claim(1)
    empty = harness.claim().claimed
    assert empty.until == harness.clock.now() + MICROS


def test_pool_claim_takes_what_is_behind_a_delayed_head(harness: StoreHarness) -> None:
    harness.configure(exclusivity="partition")
    harness.push("head", "next")
    harness.retry(harness.take(), delay=3600)
    assert harness.claim().why == "delayed"
    assert harness.claim(exclusivity="none").bodies == ["next"]


def test_empty_batch_writes_nothing(harness: StoreHarness) -> None:
    assert list(harness.do(c.Push(queue="q", messages=PlainBatch([])))) == []
    with pytest.raises(BadInput):
        harness.do(c.Push(queue="q", messages=PlainBatch([b"1", b"2"], ["only one"])))
    harness.push("a")
    assert harness.claim().bodies == ["a"]


def test_adding_to_a_lease_stops_at_a_day(harness: StoreHarness) -> None:
    harness.push("a")
    lease = harness.claim().lease_id
    day = 24 * 3600 * MICROS
    with pytest.raises(BadInput):
        harness.do(c.Extend(lease_id=lease, add=day))
    assert harness.do(c.Extend(lease_id=lease, add=day - 3600 * MICROS)).deadline is not None


def test_redrive_below_a_seek_in_any_order(harness: StoreHarness) -> None:
    harness.push(*map(str, range(6)))
    harness.reject(*harness.claim().deliveries)
    harness.seek("end")
    letters = {letter.seq: letter for letter in harness.dead()}
    for seq in (1, 4, 0):
        assert harness.redrive(letters[seq]).count == 1
    assert sorted(harness.claim().bodies) == ["0", "1", "4"]


def test_rewind_charges_one_message_of_a_failed_lease(harness: StoreHarness) -> None:
    harness.configure(exclusivity="partition", on_failure="rewind")
    harness.push(*map(str, range(5)))
    hand = harness.claim()
    (answer,) = harness.settle(entry(c.ByLease(hand.lease_id), "retry"))
    assert (answer.verdict, answer.count) == ("retried", 5)
    assert [(d.body, d.failures) for d in harness.claim().deliveries] == [
        ("0", 1),
        ("1", 0),
        ("2", 0),
        ("3", 0),
        ("4", 0),
    ]


def test_rewind_ends_the_lease_on_every_lane_of_the_partition(harness: StoreHarness) -> None:
    harness.configure(exclusivity="partition", on_failure="rewind")
    harness.push("a", priority=0)
    harness.push("b", priority=1)
    hand = harness.claim()
    assert harness.retry(hand.deliveries[0]) == ["retried"]
    assert [(d.body, d.failures) for d in harness.claim().deliveries] == [("a", 1), ("b", 0)]


def test_delayed_message_remembers_when_it_was_pushed(harness: StoreHarness) -> None:
    harness.configure(dedupe_seconds=100)
    pushed = harness.clock.now()
    harness.push("a", txid="once", delay=90)
    harness.advance(91)
    delivery = harness.take()
    assert abs(delivery.message.created_at - pushed) < 1000
    harness.advance(20)
    assert harness.push("b", txid="once")[0].status == "queued"


def test_message_put_back_from_a_snapshot_is_pruned_again(harness: StoreHarness) -> None:
    harness.configure(completed_retention_seconds=10)
    harness.push("a")
    harness.reject(harness.take())
    harness.advance(20)
    assert harness.sweep("retain")["retain"] == 1
    (letter,) = harness.dead()
    harness.redrive(letter)
    harness.ack(harness.take())
    assert harness.sweep("retain")["retain"] == 1
    assert harness.sweep("retain")["retain"] == 0


def test_ledger_counts_deaths_by_expiry_and_drops(harness: StoreHarness) -> None:
    harness.configure(retry_limit=1)
    harness.push("a")
    harness.claim(1, seconds=1)
    harness.advance(1)
    harness.sweep("expire")
    harness.configure(dead_letters=False)
    harness.push("b")
    harness.settle(entry(harness.take(), Outcome.REJECT.value))
    counted = {row.outcome: row.count for row in harness.store.ask(q.ReadLedger(queue="q", group=QUEUE_MODE))}
    assert (counted["dead"], counted["expired"]) == (1, 1)
