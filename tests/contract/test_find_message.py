"""One message, looked up by its partition and transaction id: where it is and how every group stands to it."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, MessageNotFound
from ackwise.core.messages import QUEUE_MODE
from tests.contract.support import Desk

DAY = 24 * 3600.0


def find(desk: Desk, partition_id: str, transaction_id: str) -> q.FoundMessage:
    return desk.store.find_message(q.FindMessage(partition_id=partition_id, transaction_id=transaction_id))


def states(found: q.FoundMessage) -> dict[str, str]:
    return {view.group: view.state for view in found.groups}


def test_a_message_is_found_with_its_place(desk: Desk) -> None:
    desk.do(c.ConfigureQueue(queue="q", namespace="shop", task="mail", policy={"retry_limit": 5}))
    receipts = desk.number(3, partition="p", priority=2)
    found = find(desk, receipts[1].partition_id, "t1")
    assert (found.message.id, found.message.payload, found.message.transaction_id) == (
        receipts[1].message_id,
        b"1",
        "t1",
    )
    assert (found.queue.name, found.queue.namespace, found.queue.task) == ("q", "shop", "mail")
    assert found.queue.policy["retry_limit"] == 5
    assert (found.partition, found.partition_id, found.priority) == ("p", receipts[1].partition_id, 2)
    assert (found.due_at, found.groups, found.dead) == (None, [], [])


def test_by_the_id_that_was_minted_for_it(desk: Desk) -> None:
    receipts = desk.push("a", "b")
    assert find(desk, receipts[1].partition_id, receipts[1].message_id).message.payload == b"b"


def test_the_same_transaction_id_in_another_partition_is_another_message(desk: Desk) -> None:
    (one,) = desk.push("one", partition="p1", txid="t")
    (two,) = desk.push("two", partition="p2", txid="t")
    assert find(desk, one.partition_id, "t").message.payload == b"one"
    assert find(desk, two.partition_id, "t").message.payload == b"two"


@pytest.mark.parametrize("transaction_id", ["t9", "0190b1f0-0000-7000-8000-000000000000", "", "x" * 513])
def test_what_was_never_pushed_is_not_found(desk: Desk, transaction_id: str) -> None:
    (receipt,) = desk.number(1)
    with pytest.raises((MessageNotFound, BadInput)):
        find(desk, receipt.partition_id, transaction_id)


def test_an_unknown_partition_and_a_deleted_queue_have_no_messages(desk: Desk) -> None:
    (receipt,) = desk.number(1)
    with pytest.raises(MessageNotFound):
        find(desk, "0190b1f0-0000-7000-8000-000000000000", "t0")
    desk.do(c.DeleteQueue(queue="q"))
    with pytest.raises(MessageNotFound):
        find(desk, receipt.partition_id, "t0")


def test_each_group_stands_in_its_own_way(desk: Desk) -> None:
    receipts = desk.number(2)
    part = receipts[0].partition_id
    for name in ("acker", "holder", "failer", "rejecter", "idler"):
        desk.do(c.ConfigureGroup(queue="q", group=name))
    desk.do(c.ConfigureGroup(queue="q", group="late", start="new"))
    desk.ack(desk.take(group="acker"))
    desk.take(group="holder", seconds=100)
    desk.retry(desk.take(group="failer"), delay=5)
    desk.reject(desk.take(group="rejecter"), error="broken")
    found = find(desk, part, "t0")
    assert states(found) == {
        "acker": "acked",
        "failer": "waiting",
        "holder": "leased",
        "idler": "ready",
        "late": "skipped",
        "rejecter": "dead",
    }
    views = {view.group: view for view in found.groups}
    assert views["holder"].deadline == desk.clock.now() + 100_000_000
    assert (views["holder"].failures, views["holder"].deliveries) == (0, 1)
    assert (views["failer"].deadline, views["failer"].failures) == (None, 1)
    assert (views["rejecter"].failures, views["rejecter"].deliveries) == (0, 1)
    assert views["acker"].deadline is None
    assert [(letter.group, letter.error) for letter in found.dead] == [("rejecter", "broken")]
    assert set(states(find(desk, part, "t1")).values()) == {"ready", "skipped"}


def test_a_scheduled_message_is_found_before_and_after_it_is_due(desk: Desk) -> None:
    desk.do(c.ConfigureQueue(queue="q"))
    desk.do(c.ConfigureGroup(queue="q", group="g"))
    (receipt,) = desk.push("later", txid="t", priority=3, delay=60)
    found = find(desk, receipt.partition_id, "t")
    assert (found.message.id, found.message.payload) == (receipt.message_id, b"later")
    assert (found.due_at, found.priority) == (desk.clock.now() + 60_000_000, 3)
    assert states(found) == {"g": "scheduled"}
    desk.advance(61)
    desk.sweep("promote")
    found = find(desk, receipt.partition_id, "t")
    assert (found.due_at, states(found), found.message.id) == (None, {"g": "ready"}, receipt.message_id)


def test_a_dead_message_is_found_after_its_payload_was_pruned(desk: Desk) -> None:
    desk.configure(retention_seconds=DAY, dedupe_seconds=30 * DAY)
    (receipt,) = desk.push("poison", txid="t")
    desk.reject(desk.take(), error="bad")
    desk.push("young")
    desk.advance(2 * DAY)
    desk.sweep("retain")
    assert desk.states() == []
    found = find(desk, receipt.partition_id, "t")
    assert (found.message.payload, found.message.id) == (b"poison", receipt.message_id)
    assert states(found) == {QUEUE_MODE: "dead"}


def test_and_after_its_id_was_forgotten(desk: Desk) -> None:
    desk.configure(retention_seconds=DAY, dedupe_seconds=DAY)
    (receipt,) = desk.push("poison", txid="t")
    desk.reject(desk.take(), error="bad")
    desk.advance(3 * DAY)
    desk.sweep("retain", "forget")
    found = find(desk, receipt.partition_id, "t")
    assert (found.message.payload, [letter.error for letter in found.dead]) == (b"poison", ["bad"])


def test_a_pruned_message_is_not_found(desk: Desk) -> None:
    desk.configure(retention_seconds=DAY, dedupe_seconds=30 * DAY)
    (receipt,) = desk.push("old", txid="t")
    desk.advance(2 * DAY)
    desk.sweep("retain")
    with pytest.raises(MessageNotFound):
        find(desk, receipt.partition_id, "t")


def test_a_stored_message_whose_id_dedupe_has_forgotten_is_found(desk: Desk) -> None:
    desk.configure(completed_retention_seconds=None, dedupe_seconds=DAY)
    receipts = desk.number(3)
    desk.advance(3 * DAY)
    desk.sweep("forget")
    desk.push("new", txid="t9")
    desk.sweep("forget")
    found = find(desk, receipts[2].partition_id, "t2")
    assert (found.message.id, found.message.payload) == (receipts[2].message_id, b"2")
    with pytest.raises(MessageNotFound):
        find(desk, receipts[2].partition_id, "t8")


def test_of_two_messages_with_one_id_the_newer_is_found_with_its_own_dead_letters(desk: Desk) -> None:
    desk.configure(completed_retention_seconds=None, dedupe_seconds=DAY)
    desk.push("old", txid="t")
    desk.reject(desk.take(), error="old trouble")
    desk.advance(2 * DAY)
    (newer,) = desk.push("new", txid="t")
    assert newer.status == "queued"
    found = find(desk, newer.partition_id, "t")
    assert (found.message.payload, found.dead) == (b"new", [])
    desk.reject(desk.take(), error="new trouble")
    assert [letter.error for letter in find(desk, newer.partition_id, "t").dead] == ["new trouble"]
