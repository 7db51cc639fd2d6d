"""Corners where rules meet: each of these was wrong once."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from ackwise.core.limits import MICROS
from ackwise.core.messages import QUEUE_MODE, NewMessage, PlainBatch
from ackwise.core.settlement import Outcome
from tests.contract.support import Desk, entry


def test_an_expired_queue_lease_does_not_hide_a_live_one(desk: Desk) -> None:
    desk.push(*map(str, range(3)))
    desk.claim(1, exclusivity="queue", seconds=10)
    desk.advance(10)
    claims = [c.Claim(queue="q", most=1, exclusivity=kind, owner=kind) for kind in ("queue", "none")]
    first, second = desk.together(*claims)
    assert (first.count, second.count) == (1, 0)
    assert second.empty == "locked"


def test_a_priority_is_found_behind_many_ready_lanes(desk: Desk) -> None:
    desk.send([NewMessage(b"other", partition=f"p{i}") for i in range(60)])
    desk.push("mine", priority=5, partition="p59")
    assert desk.claim(priorities=(5,)).bodies == ["mine"]


def test_lanes_beside_an_exclusive_hold_wait_and_come_back(desk: Desk) -> None:
    desk.configure(exclusivity="partition")
    desk.push("urgent", partition="a", priority=0)
    desk.push("later", partition="a", priority=1)
    held = desk.claim(1)
    assert held.bodies == ["urgent"]
    assert (desk.claim().why, desk.claim().why) == ("locked", "locked")
    desk.push("elsewhere", partition="b")
    assert desk.claim(1).bodies == ["elsewhere"]
    desk.ack(held.deliveries[0])
    assert desk.claim(1).bodies == ["later"]


def test_an_owner_finds_the_free_lanes_of_its_own_partition(desk: Desk) -> None:
    desk.configure(exclusivity="partition")
    desk.push("urgent", partition="a", priority=0)
    desk.push("later", partition="a", priority=1)
    assert desk.claim(1, owner="me").bodies == ["urgent"]
    assert desk.claim(1, owner="you").why == "locked"
    assert desk.claim(1, owner="me").bodies == ["later"]


def test_minted_transaction_ids_are_found_wherever_they_stand_in_a_push(desk: Desk) -> None:
    receipts = desk.push(*map(str, range(5)))
    hand = desk.claim()
    selectors = [c.ByTransaction(r.partition_id, r.transaction_id) for r in receipts]
    assert desk.ack(*selectors) == ["acked"] * 5
    assert desk.ack(*selectors) == ["already"] * 5
    assert len(hand) == 5
    again = [desk.push("copy", txid=r.transaction_id)[0].status for r in receipts]
    assert again == ["duplicate"] * 5


def test_a_shorter_delay_takes_effect_at_once(desk: Desk) -> None:
    desk.configure(delay_seconds=3600)
    desk.do(c.ConfigureGroup(queue="q", group=QUEUE_MODE))
    desk.push("a")
    assert desk.claim().why == "delayed"
    desk.configure(delay_seconds=0)
    assert desk.claim().bodies == ["a"]


def test_a_failed_lease_says_how_many_died(desk: Desk) -> None:
    desk.configure(retry_limit=2)
    desk.push("old")
    desk.retry(desk.take())
    desk.push("new")
    hand = desk.claim()
    (answer,) = desk.settle(entry(c.ByLease(hand.lease_id), "retry"))
    assert (answer.verdict, answer.count, answer.dead) == ("retried", 2, 1)
    (answer,) = desk.settle(entry(c.ByLease(desk.claim().lease_id), "retry"))
    assert (answer.verdict, answer.count, answer.dead, answer.reason) == ("dead", 1, 1, "retry_limit")


def test_large_leases_expire_together(desk: Desk) -> None:
    desk.configure(exclusivity="none")
    desk.push(*map(str, range(300)))
    for _ in range(3):
        desk.claim(100, seconds=1)
    desk.advance(1)
    assert desk.sweep("expire", limit=100) == {"expire": 3}
    assert desk.group().leases == 0


def test_locked_tells_the_earlier_of_both(desk: Desk) -> None:
    desk.configure(exclusivity="partition", lease_seconds=300)
    desk.push("a", partition="a")
    desk.push("b", partition="b")
    desk.retry(desk.take(partitions=("b",)), delay=1)
    desk.claim(1)
    empty = desk.claim().claimed
    assert empty.until == desk.clock.now() + MICROS


def test_a_pool_claim_takes_what_is_behind_a_delayed_head(desk: Desk) -> None:
    desk.configure(exclusivity="partition")
    desk.push("head", "next")
    desk.retry(desk.take(), delay=3600)
    assert desk.claim().why == "delayed"
    assert desk.claim(exclusivity="none").bodies == ["next"]


def test_an_empty_batch_writes_nothing(desk: Desk) -> None:
    assert list(desk.do(c.Push(queue="q", messages=PlainBatch([])))) == []
    with pytest.raises(BadInput):
        desk.do(c.Push(queue="q", messages=PlainBatch([b"1", b"2"], ["only one"])))
    desk.push("a")
    assert desk.claim().bodies == ["a"]


def test_adding_to_a_lease_stops_at_a_day(desk: Desk) -> None:
    desk.push("a")
    lease = desk.claim().lease_id
    day = 24 * 3600 * MICROS
    with pytest.raises(BadInput):
        desk.do(c.Extend(lease_id=lease, add=day))
    assert desk.do(c.Extend(lease_id=lease, add=day - 3600 * MICROS)).deadline is not None


def test_redrive_below_a_seek_in_any_order(desk: Desk) -> None:
    desk.push(*map(str, range(6)))
    desk.reject(*desk.claim().deliveries)
    desk.seek("end")
    letters = {letter.seq: letter for letter in desk.dead()}
    for seq in (1, 4, 0):
        assert desk.redrive(letters[seq]).count == 1
    assert sorted(desk.claim().bodies) == ["0", "1", "4"]


def test_rewind_charges_one_message_of_a_failed_lease(desk: Desk) -> None:
    desk.configure(exclusivity="partition", on_failure="rewind")
    desk.push(*map(str, range(5)))
    hand = desk.claim()
    (answer,) = desk.settle(entry(c.ByLease(hand.lease_id), "retry"))
    assert (answer.verdict, answer.count) == ("retried", 5)
    assert [(d.body, d.failures) for d in desk.claim().deliveries] == [
        ("0", 1),
        ("1", 0),
        ("2", 0),
        ("3", 0),
        ("4", 0),
    ]


def test_rewind_ends_the_lease_on_every_lane_of_the_partition(desk: Desk) -> None:
    desk.configure(exclusivity="partition", on_failure="rewind")
    desk.push("a", priority=0)
    desk.push("b", priority=1)
    hand = desk.claim()
    assert desk.retry(hand.deliveries[0]) == ["retried"]
    assert [(d.body, d.failures) for d in desk.claim().deliveries] == [("a", 1), ("b", 0)]


def test_a_delayed_message_remembers_when_it_was_pushed(desk: Desk) -> None:
    desk.configure(dedupe_seconds=100)
    pushed = desk.clock.now()
    desk.push("a", txid="once", delay=90)
    desk.advance(91)
    delivery = desk.take()
    assert abs(delivery.message.created_at - pushed) < 1000
    desk.advance(20)
    assert desk.push("b", txid="once")[0].status == "queued"


def test_a_message_put_back_from_a_snapshot_is_pruned_again(desk: Desk) -> None:
    desk.configure(completed_retention_seconds=10)
    desk.push("a")
    desk.reject(desk.take())
    desk.advance(20)
    assert desk.sweep("retain")["retain"] == 1
    (letter,) = desk.dead()
    desk.redrive(letter)
    desk.ack(desk.take())
    assert desk.sweep("retain")["retain"] == 1
    assert desk.sweep("retain")["retain"] == 0


def test_the_ledger_counts_deaths_by_expiry_and_drops(desk: Desk) -> None:
    desk.configure(retry_limit=1)
    desk.push("a")
    desk.claim(1, seconds=1)
    desk.advance(1)
    desk.sweep("expire")
    desk.configure(dead_letters=False)
    desk.push("b")
    desk.settle(entry(desk.take(), Outcome.REJECT.value))
    counted = {row.outcome: row.count for row in desk.store.read_ledger(q.ReadLedger(queue="q", group=QUEUE_MODE))}
    assert (counted["dead"], counted["expired"]) == (1, 1)
