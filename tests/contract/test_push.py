"""Push: places, ids, headers, priorities, many callers in one commit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, PayloadTooLarge, UnknownQueue
from ackwise.core.ids import uuid_int
from ackwise.core.messages import NewMessage, PlainBatch
from ackwise.core.policy import QueuePolicy
from ackwise.store.turn import checks
from tests.contract.support import Desk


def test_messages_get_dense_places_in_their_order(desk: Desk) -> None:
    first, second = desk.push("a", "b"), desk.push("c")
    assert [r.seq for r in first + second] == [0, 1, 2]
    assert {r.status for r in first + second} == {"queued"}
    assert desk.claim().bodies == ["a", "b", "c"]


def test_ids_rise_and_stand_in_for_a_transaction_id(desk: Desk) -> None:
    receipts = desk.push("a", "b") + desk.push("c")
    numbers = [uuid_int(r.message_id) for r in receipts]
    assert None not in numbers
    assert numbers == sorted(set(numbers), key=lambda n: n or 0)
    assert [r.transaction_id for r in receipts] == [r.message_id for r in receipts]
    assert [d.message.id for d in desk.claim().deliveries] == [r.message_id for r in receipts]


def test_a_partition_has_one_id_and_its_lanes_count_each_for_itself(desk: Desk) -> None:
    low, urgent, other = (
        desk.push("low", priority=5)[0],
        desk.push("urgent")[0],
        desk.push("other", partition="p2")[0],
    )
    assert low.partition_id == urgent.partition_id != other.partition_id
    assert (low.seq, urgent.seq, other.seq) == (0, 0, 0)
    assert (low.partition, other.partition) == ("Default", "p2")


def test_payload_headers_and_content_type_come_back_as_they_were(desk: Desk) -> None:
    sent = [
        NewMessage(b'{"n": 1}', headers={"trace": "täg", "": "empty key"}),
        NewMessage(bytes(range(256)), content_type="application/octet-stream"),
        NewMessage(b""),
    ]
    desk.send(sent)
    got = [d.message for d in desk.claim().deliveries]
    assert [m.payload for m in got] == [m.payload for m in sent]
    assert [m.headers for m in got] == [{"trace": "täg", "": "empty key"}, {}, {}]
    assert [m.content_type for m in got] == ["application/json", "application/octet-stream", "application/json"]
    assert {m.created_at for m in got} == {desk.clock.now()}


def test_more_than_a_segment_holds_in_one_push(desk: Desk) -> None:
    desk.push(*(f"m{i}" for i in range(700)))
    assert desk.claim(1000).bodies == [f"m{i}" for i in range(700)]


def test_large_payloads_among_small_ones(desk: Desk) -> None:
    bodies = ["x" * size for size in (10, 70_000, 5, 5, 40_000, 40_000, 1)]
    desk.push(*bodies)
    assert desk.claim(100).bodies == bodies
    assert [b.message.payload.decode() for b in desk.store.browse(q.Browse(queue="q"))] == bodies


def test_a_payload_at_the_limit_goes_in_and_one_over_it_does_not(desk: Desk) -> None:
    desk.configure(max_payload_bytes=100)
    desk.push("x" * 100)
    before = desk.everything()
    with pytest.raises(PayloadTooLarge, match="101 bytes"):
        desk.push("fine", "x" * 101)
    assert desk.everything() == before


def test_a_push_makes_its_queue_with_the_policy_it_brings(desk: Desk) -> None:
    policy = QueuePolicy(retry_limit=7, exclusivity="partition")
    desk.do(c.Push(queue="ns.task.rest", messages=[NewMessage(b"1")], create=policy))
    info = desk.store.get_queue(q.GetQueue(queue="ns.task.rest"))
    assert (info.policy["retry_limit"], info.policy["exclusivity"]) == (7, "partition")
    assert (info.namespace, info.task) == ("ns", "task")
    desk.do(c.Push(queue="ns.task.rest", messages=[NewMessage(b"2")], create=QueuePolicy(retry_limit=1)))
    assert desk.store.get_queue(q.GetQueue(queue="ns.task.rest")).policy["retry_limit"] == 7


def test_without_leave_to_create_an_unknown_queue_is_refused(desk: Desk) -> None:
    with pytest.raises(UnknownQueue, match="no queue 'q'"):
        desk.do(c.Push(queue="q", messages=[NewMessage(b"1")], create=None))
    assert desk.store.list_queues(q.ListQueues()) == []


def test_an_empty_push_answers_nothing_and_stores_nothing(desk: Desk) -> None:
    assert desk.send([]) == []
    assert desk.store.stats(q.QueueStats(queue="q")).messages == 0


def test_callers_merged_into_one_commit_each_get_their_own_answers(desk: Desk) -> None:
    answers = desk.together(
        c.Push(queue="q", messages=[NewMessage(b"a"), NewMessage(b"b")]),
        c.Push(queue="q", messages=[NewMessage(b"c")]),
        c.Push(queue="r", messages=[NewMessage(b"d")]),
        c.Claim(queue="q", most=5),
    )
    assert [[r.seq for r in receipts] for receipts in answers[:3]] == [[0, 1], [2], [0]]
    assert answers[3].count == 3


def test_receipts_can_be_indexed_sliced_and_counted(desk: Desk) -> None:
    receipts = desk.do(c.Push(queue="q", messages=[NewMessage(str(i).encode()) for i in range(4)]))
    assert len(receipts) == 4
    assert [r.seq for r in receipts[1:3]] == [1, 2]
    assert receipts[-1].seq == 3


def test_a_push_is_looked_through_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done while everybody waits for the store. What is refused is refused as before, and alone."""
    seen: list[c.Push] = []
    look: Callable[[c.Push], PlainBatch | None] = checks._columns

    def counting(push: c.Push) -> PlainBatch | None:
        seen.append(push)
        return look(push)

    monkeypatch.setattr(checks, "_columns", counting)
    pushes = [
        c.Push(queue="q", messages=PlainBatch([b"1", b"2"], ["a", "b"])),
        c.Push(queue="q", messages=[NewMessage(b"3", transaction_id="c")]),
        c.Push(queue="q", messages=PlainBatch([b"4"], ["d", "too many"])),
        c.Push(queue="q", messages=[NewMessage(b"5", headers={"h": "x"}), NewMessage(b"6", partition="other")]),
    ]
    answers = desk.together(*pushes)
    assert [isinstance(answer, BadInput) for answer in answers] == [False, False, True, False]
    assert seen == pushes
    seen.clear()
    with pytest.raises(BadInput):
        desk.do(c.Transaction(pushes=pushes))
    fine = [pushes[0], pushes[1], pushes[3]]
    seen.clear()
    done = desk.do(c.Transaction(pushes=fine))
    assert [[one.status for one in receipts] for receipts in done.pushed] == [
        ["duplicate"] * 2,
        ["duplicate"],
        ["queued"] * 2,
    ]
    assert seen == fine
