"""Push: places, ids, headers, priorities, many callers in one commit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackwise.core import command_checks
from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, PayloadTooLarge, UnknownQueue
from ackwise.core.ids import uuid_int
from ackwise.core.messages import NewMessage, PlainBatch
from ackwise.core.policy import QueuePolicy
from tests.engine.store_harness import StoreHarness


def test_messages_get_dense_places_in_their_order(harness: StoreHarness) -> None:
    first, second = harness.push("a", "b"), harness.push("c")
    assert [r.seq for r in first + second] == [0, 1, 2]
    assert {r.status for r in first + second} == {"queued"}
    assert harness.claim().bodies == ["a", "b", "c"]


def test_ids_rise_and_stand_in_for_a_transaction_id(harness: StoreHarness) -> None:
    receipts = harness.push("a", "b") + harness.push("c")
    numbers = [uuid_int(r.message_id) for r in receipts]
    assert None not in numbers
    assert numbers == sorted(set(numbers), key=lambda n: n or 0)
    assert [r.transaction_id for r in receipts] == [r.message_id for r in receipts]
    assert [d.message.id for d in harness.claim().deliveries] == [r.message_id for r in receipts]


def test_partition_has_one_id_and_lanes_count_separately(harness: StoreHarness) -> None:
    low, urgent, other = (
        harness.push("low", priority=5)[0],
        harness.push("urgent")[0],
        harness.push("other", partition="p2")[0],
    )
    assert low.partition_id == urgent.partition_id != other.partition_id
    assert (low.seq, urgent.seq, other.seq) == (0, 0, 0)
    assert (low.partition, other.partition) == ("Default", "p2")


def test_payload_headers_and_content_type_come_back_as_they_were(harness: StoreHarness) -> None:
    sent = [
        NewMessage(b'{"n": 1}', headers={"trace": "täg", "": "empty key"}),
        NewMessage(bytes(range(256)), content_type="application/octet-stream"),
        NewMessage(b""),
    ]
    harness.send(sent)
    got = [d.message for d in harness.claim().deliveries]
    assert [m.payload for m in got] == [m.payload for m in sent]
    assert [m.headers for m in got] == [{"trace": "täg", "": "empty key"}, {}, {}]
    assert [m.content_type for m in got] == ["application/json", "application/octet-stream", "application/json"]
    assert {m.created_at for m in got} == {harness.clock.now()}


def test_push_larger_than_a_segment_keeps_all_messages(harness: StoreHarness) -> None:
    harness.push(*(f"m{i}" for i in range(700)))
    assert harness.claim(1000).bodies == [f"m{i}" for i in range(700)]


def test_large_payloads_among_small_ones(harness: StoreHarness) -> None:
    bodies = ["x" * size for size in (10, 70_000, 5, 5, 40_000, 40_000, 1)]
    harness.push(*bodies)
    assert harness.claim(100).bodies == bodies
    assert [b.message.payload.decode() for b in harness.store.ask(q.Browse(queue="q"))] == bodies


def test_payload_at_the_limit_goes_in_and_one_over_it_does_not(harness: StoreHarness) -> None:
    harness.configure(max_payload_bytes=100)
    harness.push("x" * 100)
    before = harness.everything()
    with pytest.raises(PayloadTooLarge, match="101 bytes"):
        harness.push("fine", "x" * 101)
    assert harness.everything() == before


def test_push_makes_its_queue_with_the_policy_it_brings(harness: StoreHarness) -> None:
    policy = QueuePolicy(retry_limit=7, exclusivity="partition")
    harness.do(c.Push(queue="ns.task.rest", messages=[NewMessage(b"1")], create=policy))
    info = harness.store.ask(q.GetQueue(queue="ns.task.rest"))
    assert (info.policy["retry_limit"], info.policy["exclusivity"]) == (7, "partition")
    assert (info.namespace, info.task) == ("ns", "task")
    harness.do(c.Push(queue="ns.task.rest", messages=[NewMessage(b"2")], create=QueuePolicy(retry_limit=1)))
    assert harness.store.ask(q.GetQueue(queue="ns.task.rest")).policy["retry_limit"] == 7


def test_push_without_create_to_an_unknown_queue_is_refused(harness: StoreHarness) -> None:
    with pytest.raises(UnknownQueue, match="no queue 'q'"):
        harness.do(c.Push(queue="q", messages=[NewMessage(b"1")], create=None))
    assert harness.store.ask(q.ListQueues()) == []


def test_empty_push_answers_nothing_and_stores_nothing(harness: StoreHarness) -> None:
    assert harness.send([]) == []
    assert harness.store.ask(q.QueueStats(queue="q")).messages == 0


def test_merged_callers_each_get_own_answers(harness: StoreHarness) -> None:
    answers = harness.together(
        c.Push(queue="q", messages=[NewMessage(b"a"), NewMessage(b"b")]),
        c.Push(queue="q", messages=[NewMessage(b"c")]),
        c.Push(queue="r", messages=[NewMessage(b"d")]),
        c.Claim(queue="q", most=5),
    )
    assert [[r.seq for r in receipts] for receipts in answers[:3]] == [[0, 1], [2], [0]]
    assert answers[3].count == 3


def test_receipts_can_be_indexed_sliced_and_counted(harness: StoreHarness) -> None:
    receipts = harness.do(c.Push(queue="q", messages=[NewMessage(str(i).encode()) for i in range(4)]))
    assert len(receipts) == 4
    assert [r.seq for r in receipts[1:3]] == [1, 2]
    assert receipts[-1].seq == 3


def test_push_is_looked_through_once(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker prepares it while the store is busy. A refused push is refused as before, and alone."""
    seen: list[c.Push] = []
    look: Callable[[c.Push], PlainBatch | None] = command_checks._columns

    def counting(push: c.Push) -> PlainBatch | None:
        seen.append(push)
        return look(push)

    monkeypatch.setattr(command_checks, "_columns", counting)
    pushes = [
        c.Push(queue="q", messages=PlainBatch([b"1", b"2"], ["a", "b"])),
        c.Push(queue="q", messages=[NewMessage(b"3", transaction_id="c")]),
        c.Push(queue="q", messages=PlainBatch([b"4"], ["d", "too many"])),
        c.Push(queue="q", messages=[NewMessage(b"5", headers={"h": "x"}), NewMessage(b"6", partition="other")]),
    ]
    answers = harness.together(*pushes)
    assert [isinstance(answer, BadInput) for answer in answers] == [False, False, True, False]
    assert seen == pushes
    seen.clear()
    with pytest.raises(BadInput):
        harness.do(c.Transaction(pushes=pushes))
    fine = [pushes[0], pushes[1], pushes[3]]
    seen.clear()
    done = harness.do(c.Transaction(pushes=fine))
    assert [[one.status for one in receipts] for receipts in done.pushed] == [
        ["duplicate"] * 2,
        ["duplicate"],
        ["queued"] * 2,
    ]
    assert seen == fine
