"""One message, looked up by its partition and transaction id: where it is and how every group stands to it."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, MessageNotFound
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.rows import FoundMessage
from ackwise.engine.reads import messages
from tests.engine.store_harness import StoreHarness

DAY = 24 * 3600.0


def find(harness: StoreHarness, partition_id: str, transaction_id: str) -> FoundMessage:
    return harness.store.ask(q.FindMessage(partition_id=partition_id, transaction_id=transaction_id))


def states(found: FoundMessage) -> dict[str, str]:
    return {view.group: view.state for view in found.groups}


def test_message_is_found_with_its_place(harness: StoreHarness) -> None:
    harness.do(c.ConfigureQueue(queue="q", namespace="shop", task="mail", policy={"retry_limit": 5}))
    receipts = harness.number(3, partition="p", priority=2)
    found = find(harness, receipts[1].partition_id, "t1")
    assert (found.message.id, found.message.payload, found.message.transaction_id) == (
        receipts[1].message_id,
        b"1",
        "t1",
    )
    assert (found.queue.name, found.queue.namespace, found.queue.task) == ("q", "shop", "mail")
    assert found.queue.policy["retry_limit"] == 5
    assert (found.partition, found.partition_id, found.priority) == ("p", receipts[1].partition_id, 2)
    assert (found.due_at, found.groups, found.dead) == (None, [], [])


def test_message_is_found_by_its_minted_id(harness: StoreHarness) -> None:
    receipts = harness.push("a", "b")
    assert find(harness, receipts[1].partition_id, receipts[1].message_id).message.payload == b"b"


def test_same_transaction_id_in_other_partition_is_distinct(harness: StoreHarness) -> None:
    (one,) = harness.push("one", partition="p1", txid="t")
    (two,) = harness.push("two", partition="p2", txid="t")
    assert find(harness, one.partition_id, "t").message.payload == b"one"
    assert find(harness, two.partition_id, "t").message.payload == b"two"


@pytest.mark.parametrize("transaction_id", ["t9", "0190b1f0-0000-7000-8000-000000000000", "", "x" * 513])
def test_message_never_pushed_is_not_found(harness: StoreHarness, transaction_id: str) -> None:
    (receipt,) = harness.number(1)
    with pytest.raises((MessageNotFound, BadInput)):
        find(harness, receipt.partition_id, transaction_id)


def test_unknown_partition_and_deleted_queue_have_no_messages(harness: StoreHarness) -> None:
    (receipt,) = harness.number(1)
    with pytest.raises(MessageNotFound):
        find(harness, "0190b1f0-0000-7000-8000-000000000000", "t0")
    harness.do(c.DeleteQueue(queue="q"))
    with pytest.raises(MessageNotFound):
        find(harness, receipt.partition_id, "t0")


def test_each_group_stands_in_its_own_way(harness: StoreHarness) -> None:
    receipts = harness.number(2)
    part = receipts[0].partition_id
    for name in ("acker", "holder", "failer", "rejecter", "idler"):
        harness.do(c.ConfigureGroup(queue="q", group=name))
    harness.do(c.ConfigureGroup(queue="q", group="late", start="new"))
    harness.ack(harness.take(group="acker"))
    harness.take(group="holder", seconds=100)
    harness.retry(harness.take(group="failer"), delay=5)
    harness.reject(harness.take(group="rejecter"), error="broken")
    found = find(harness, part, "t0")
    assert states(found) == {
        "acker": "acked",
        "failer": "waiting",
        "holder": "leased",
        "idler": "ready",
        "late": "skipped",
        "rejecter": "dead",
    }
    views = {view.group: view for view in found.groups}
    assert views["holder"].deadline == harness.clock.now() + 100_000_000
    assert (views["holder"].failures, views["holder"].deliveries) == (0, 1)
    assert (views["failer"].deadline, views["failer"].failures) == (None, 1)
    assert (views["rejecter"].failures, views["rejecter"].deliveries) == (0, 1)
    assert views["acker"].deadline is None
    assert [(letter.group, letter.error) for letter in found.dead] == [("rejecter", "broken")]
    assert set(states(find(harness, part, "t1")).values()) == {"ready", "skipped"}


def test_scheduled_message_is_found_before_and_after_it_is_due(harness: StoreHarness) -> None:
    harness.do(c.ConfigureQueue(queue="q"))
    harness.do(c.ConfigureGroup(queue="q", group="g"))
    (receipt,) = harness.push("later", txid="t", priority=3, delay=60)
    found = find(harness, receipt.partition_id, "t")
    assert (found.message.id, found.message.payload) == (receipt.message_id, b"later")
    assert (found.due_at, found.priority) == (harness.clock.now() + 60_000_000, 3)
    assert states(found) == {"g": "scheduled"}
    harness.advance(61)
    harness.sweep("promote")
    found = find(harness, receipt.partition_id, "t")
    assert (found.due_at, states(found), found.message.id) == (None, {"g": "ready"}, receipt.message_id)


def test_dead_message_is_found_after_its_payload_was_pruned(harness: StoreHarness) -> None:
    harness.configure(retention_seconds=DAY, dedupe_seconds=30 * DAY)
    (receipt,) = harness.push("poison", txid="t")
    harness.reject(harness.take(), error="bad")
    harness.push("young")
    harness.advance(2 * DAY)
    harness.sweep("retain")
    assert harness.states() == []
    found = find(harness, receipt.partition_id, "t")
    assert (found.message.payload, found.message.id) == (b"poison", receipt.message_id)
    assert states(found) == {QUEUE_MODE: "dead"}


def test_and_after_its_id_was_forgotten(harness: StoreHarness) -> None:
    harness.configure(retention_seconds=DAY, dedupe_seconds=DAY)
    (receipt,) = harness.push("poison", txid="t")
    harness.reject(harness.take(), error="bad")
    harness.advance(3 * DAY)
    harness.sweep("retain", "forget")
    found = find(harness, receipt.partition_id, "t")
    assert (found.message.payload, [letter.error for letter in found.dead]) == (b"poison", ["bad"])


def test_pruned_message_is_not_found(harness: StoreHarness) -> None:
    harness.configure(retention_seconds=DAY, dedupe_seconds=30 * DAY)
    (receipt,) = harness.push("old", txid="t")
    harness.advance(2 * DAY)
    harness.sweep("retain")
    with pytest.raises(MessageNotFound):
        find(harness, receipt.partition_id, "t")


def test_stored_message_whose_id_dedupe_has_forgotten_is_found(harness: StoreHarness) -> None:
    harness.configure(completed_retention_seconds=None, dedupe_seconds=DAY)
    receipts = harness.number(3)
    harness.advance(3 * DAY)
    harness.sweep("forget")
    harness.push("new", txid="t9")
    harness.sweep("forget")
    found = find(harness, receipts[2].partition_id, "t2")
    assert (found.message.id, found.message.payload) == (receipts[2].message_id, b"2")
    with pytest.raises(MessageNotFound):
        find(harness, receipts[2].partition_id, "t8")


def test_reused_id_finds_newer_message_and_its_dead_letters(harness: StoreHarness) -> None:
    harness.configure(completed_retention_seconds=None, dedupe_seconds=DAY)
    harness.push("old", txid="t")
    harness.reject(harness.take(), error="old trouble")
    harness.advance(2 * DAY)
    (newer,) = harness.push("new", txid="t")
    assert newer.status == "queued"
    found = find(harness, newer.partition_id, "t")
    assert (found.message.payload, found.dead) == (b"new", [])
    harness.reject(harness.take(), error="new trouble")
    assert [letter.error for letter in find(harness, newer.partition_id, "t").dead] == ["new trouble"]


def test_message_near_its_known_place_is_found_without_scan(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipts = harness.number(3)
    partition_id = receipts[2].partition_id
    lane = find(harness, partition_id, "t2").message.lane
    scans: list[object] = []
    monkeypatch.setattr(messages, "_among_old", lambda *found: scans.append(found))

    def near(lane: int, seq: int, transaction_id: str = "t2") -> str:
        query = q.FindMessage(partition_id=partition_id, transaction_id=transaction_id, near=(lane, seq))
        return harness.store.ask(query).message.payload.decode()

    assert [near(*place) for place in ((lane, 2), (lane, 1), (lane, 99), (1 << 40, 2))] == ["2"] * 4
    with pytest.raises(MessageNotFound):
        near(lane, 2, "t9")
    with pytest.raises(BadInput):
        near(lane, -1)
    assert scans == []
    with pytest.raises(MessageNotFound):
        find(harness, partition_id, "t9")
    assert len(scans) == 1


def test_near_another_partition_does_not_find_its_message(harness: StoreHarness) -> None:
    harness.configure(dedupe_seconds=DAY)
    (one,) = harness.push("one", partition="p1", txid="t")
    (two,) = harness.push("two", partition="p2", txid="t")
    place = find(harness, two.partition_id, "t").message
    query = q.FindMessage(partition_id=one.partition_id, transaction_id="t", near=(place.lane, place.seq))
    assert harness.store.ask(query).message.payload == b"one"
