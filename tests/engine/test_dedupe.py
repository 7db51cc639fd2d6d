"""Transaction ids: remembered per partition for the queue's window, whatever becomes of the message."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.messages import NewMessage, Receipt
from tests.engine.store_harness import StoreHarness

DAY = 24 * 3600


def statuses(receipts: list[Receipt]) -> list[str]:
    return [r.status for r in receipts]


def test_inside_one_batch_the_first_wins(harness: StoreHarness) -> None:
    receipts = harness.send([NewMessage(b"1", transaction_id=t) for t in ("a", "b", "a", "a")])
    assert statuses(receipts) == ["queued", "queued", "duplicate", "duplicate"]
    assert {r.message_id for r in receipts if r.transaction_id == "a"} == {receipts[0].message_id}
    assert [r.seq for r in receipts] == [0, 1, 0, 0]
    assert harness.store.ask(q.QueueStats(queue="q")).messages == 2


def test_duplicate_in_a_later_call_names_the_first_message(harness: StoreHarness) -> None:
    (won,) = harness.push("first", txid="a")
    (lost,) = harness.push("second", txid="a")
    assert (lost.status, lost.message_id, lost.seq) == ("duplicate", won.message_id, 0)
    assert harness.claim().bodies == ["first"]


def test_duplicate_in_the_same_commit_is_found(harness: StoreHarness) -> None:
    first, second = harness.together(
        c.Push(queue="q", messages=[NewMessage(b"1", transaction_id="a")]),
        c.Push(queue="q", messages=[NewMessage(b"2", transaction_id="a"), NewMessage(b"3", transaction_id="b")]),
    )
    assert statuses(list(first) + list(second)) == ["queued", "duplicate", "queued"]
    assert second[0].message_id == first[0].message_id


def test_partitions_and_queues_do_not_share_ids(harness: StoreHarness) -> None:
    pushed = [
        *harness.push("1", txid="a"),
        *harness.push("2", txid="a", partition="other"),
        *harness.push("3", txid="a", queue="r"),
    ]
    assert statuses(pushed) == ["queued"] * 3


def test_priorities_of_one_partition_do(harness: StoreHarness) -> None:
    (won,) = harness.push("1", txid="a", priority=1)
    (lost,) = harness.push("2", txid="a", priority=2)
    assert (lost.status, lost.message_id) == ("duplicate", won.message_id)


def test_acked_message_is_still_remembered(harness: StoreHarness) -> None:
    harness.push("1", txid="a")
    harness.ack(harness.take())
    assert statuses(harness.push("2", txid="a")) == ["duplicate"]


def test_window_ends_exactly(harness: StoreHarness) -> None:
    harness.configure(dedupe_seconds=60)
    harness.push("1", txid="a")
    harness.advance(59.999999)
    assert statuses(harness.push("2", txid="a")) == ["duplicate"]
    harness.advance(0.000001)
    assert statuses(harness.push("3", txid="a")) == ["queued"]
    assert statuses(harness.push("4", txid="a")) == ["duplicate"]
    assert harness.claim().bodies == ["1", "3"]


def test_pruned_message_is_remembered_until_its_window_ends(harness: StoreHarness) -> None:
    harness.configure(dedupe_seconds=1000, retention_seconds=10)
    (won,) = harness.push("1", txid="a")
    harness.push("plain")
    harness.advance(11)
    harness.sweep()
    assert harness.store.ask(q.Browse(queue="q")) == []
    (lost,) = harness.push("2", txid="a")
    assert (lost.status, lost.message_id) == ("duplicate", won.message_id)
    harness.advance(990)
    harness.sweep()
    assert statuses(harness.push("3", txid="a")) == ["queued"]


def test_zero_means_for_ever(harness: StoreHarness) -> None:
    harness.configure(dedupe_seconds=0, retention_seconds=10)
    harness.push("1", txid="a")
    harness.advance(20)
    for _ in range(5):
        harness.sweep()
        harness.advance(400 * DAY)
    assert statuses(harness.push("2", txid="a")) == ["duplicate"]


@pytest.mark.parametrize("due", [False, True], ids=["waiting", "promoted"])
def test_scheduled_message_has_its_id_registered(harness: StoreHarness, due: bool) -> None:
    (won,) = harness.push("later", txid="a", delay=60)
    assert (won.status, won.seq) == ("scheduled", None)
    if due:
        harness.advance(60)
        harness.sweep("promote")
    (lost,) = harness.push("now", txid="a")
    (again,) = harness.push("even later", txid="a", delay=5)
    assert (lost.status, again.status) == ("duplicate", "duplicate")
    assert lost.message_id == again.message_id == won.message_id
    assert lost.seq == (0 if due else None)


def test_scheduled_duplicate_in_one_batch(harness: StoreHarness) -> None:
    receipts = harness.send(
        [NewMessage(b"1", transaction_id="a", delay=1_000_000), NewMessage(b"2", transaction_id="a"), NewMessage(b"3")]
    )
    assert statuses(receipts) == ["scheduled", "duplicate", "queued"]


def test_minted_id_given_back_as_transaction_id_is_a_duplicate(harness: StoreHarness) -> None:
    (won,) = harness.push("1")
    (lost,) = harness.push("1 again", txid=won.transaction_id)
    assert (lost.status, lost.message_id) == ("duplicate", won.message_id)


def test_uuid_of_the_caller_is_an_id_like_any_other(harness: StoreHarness) -> None:
    text = "0193d6a0-7b1c-4c5d-8e9f-0123456789ab"
    assert statuses(harness.push("1", txid=text) + harness.push("2", txid=text)) == ["queued", "duplicate"]
    assert harness.take().transaction_id == text


def test_deleted_queue_forgets_its_ids(harness: StoreHarness) -> None:
    harness.push("1", txid="a")
    harness.do(c.DeleteQueue(queue="q"))
    assert statuses(harness.push("2", txid="a")) == ["queued"]


def test_eight_threads_push_one_id_and_one_wins(harness: StoreHarness) -> None:
    def push(number: int) -> list[Receipt]:
        ids = [f"t{i}" for i in range(20)]
        return [harness.push(f"{number}", txid=txid)[0] for txid in (ids if number % 2 else reversed(ids))]

    with ThreadPoolExecutor(8) as pool:
        receipts = [r for batch in pool.map(push, range(8)) for r in batch]
    for txid in (f"t{i}" for i in range(20)):
        mine = [r for r in receipts if r.transaction_id == txid]
        assert sorted(statuses(mine)) == ["duplicate"] * 7 + ["queued"]
        assert len({r.message_id for r in mine}) == 1
    assert harness.store.ask(q.QueueStats(queue="q")).messages == 20
