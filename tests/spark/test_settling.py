"""Settlement in bulk: ranges where neighbours are acked, bundles where there are outputs, and nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.core import commands as c
from ackwise.core import ids
from ackwise.core.answers import Claimed
from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Outcome
from ackwise.spark import bulk_settlement
from ackwise.spark.bulk_settlement import RowSettlement, Settler, group_ranges
from ackwise.spark.pipelines import map_task
from ackwise.spark.pipelines.record_handler import Answer, Failure
from tests.spark.queue_harness import QueueHarness, harness, local_harness, local_url, url

__all__ = ["harness", "local_harness", "local_url", "url"]


def claimed(harness: QueueHarness, count: int, **more: Any) -> list[str]:
    """Delivery ids, in order."""
    answer: Claimed = harness.do(c.Claim(queue="q", group="g", most=count, **more))
    return [
        ids.delivery_id(answer.lease_no, answer.tag, grant.lane, seq)
        for grant in answer.grants
        for seq in range(grant.lo, grant.hi)
    ]


def output(name: str, payload: bytes = b"1", partition: str = "Default") -> NewMessage:
    return NewMessage(payload, partition, transaction_id=name)


def settle(harness: QueueHarness, rows: list[RowSettlement], produce: str | None = None) -> dict[str, int]:
    return dict(Settler(harness.transport, produce).settle(rows))


def test_row_settlements_keep_their_outcomes(harness: QueueHarness) -> None:
    harness.configure(retry_limit=3)
    harness.number(20)
    one = claimed(harness, 20)
    rows = [RowSettlement(delivery) for delivery in one]
    rows[3] = RowSettlement(one[3], Outcome.RETRY, 3_600_000_000, "no", "ValueError")
    rows[7] = RowSettlement(one[7], Outcome.REJECT, None, "never", "Bad")
    rows[8] = RowSettlement(one[8], Outcome.RELEASE)
    assert settle(harness, rows) == {"acked": 17, "retried": 1, "dead": 1, "released": 1}
    assert harness.counts() == {"acked": 17, "dead": 1, "held": 2}
    (letter,) = harness.dead()
    assert (letter.transaction_id, letter.error, letter.error_type) == ("t7", "never", "Bad")


def test_repeated_settlement_of_rows_settles_nothing(harness: QueueHarness) -> None:
    harness.number(10)
    rows = [RowSettlement(delivery) for delivery in claimed(harness, 10)]
    rows[5] = RowSettlement(rows[5].delivery_id, Outcome.REJECT)
    assert settle(harness, rows[2:6]) == {"acked": 3, "dead": 1}
    assert settle(harness, rows) == {"acked": 6, "already": 4}
    assert settle(harness, rows) == {"already": 10}
    assert harness.counts() == {"acked": 9, "dead": 1}


def test_settlement_after_expiry_settles_nothing(harness: QueueHarness) -> None:
    harness.number(10)
    rows = [RowSettlement(delivery) for delivery in claimed(harness, 10)]
    settle(harness, rows[:2])
    harness.expire()
    late = settle(harness, rows)
    assert late["stale"] >= 8
    assert sum(late.values()) == 10
    assert harness.counts() == {"unread": 10}


def test_deliveries_that_never_were(harness: QueueHarness) -> None:
    harness.number(3)
    one = claimed(harness, 3)
    strange = ["", "x", "L1", one[0] + "z", one[0].swapcase(), "Lzzz-00000000.1.0", "é"]
    assert settle(harness, [RowSettlement(name) for name in strange]) == {"unknown": len(strange)}
    assert harness.counts() == {"held": 3}


def test_rows_of_two_leases_and_lanes_settle_together(harness: QueueHarness) -> None:
    for partition in ("a", "b"):
        harness.number(5, partition=partition)
    rows = [RowSettlement(delivery) for delivery in claimed(harness, 4) + claimed(harness, 6)]
    assert settle(harness, rows[::-1]) == {"acked": 10}


def test_row_that_is_rejected_and_acked_dies(harness: QueueHarness) -> None:
    harness.number(3)
    one = claimed(harness, 3)
    rows = [
        RowSettlement(one[0]),
        RowSettlement(one[1]),
        RowSettlement(one[1], Outcome.REJECT),
        RowSettlement(one[2]),
        RowSettlement(one[2]),
    ]
    assert settle(harness, rows) == {"acked": 2, "dead": 1, "already": 2}


def test_outputs_go_with_their_record(harness: QueueHarness) -> None:
    harness.number(6)
    one = claimed(harness, 6)
    rows = [
        RowSettlement(one[0], outputs=[output("a"), output("b")]),
        RowSettlement(one[1]),
        RowSettlement(one[2], Outcome.RETRY, None, "no"),
        RowSettlement(one[3], outputs=[output("c", partition="p")]),
        RowSettlement(one[4], outputs=[output("d")]),
        RowSettlement(one[5], Outcome.REJECT),
    ]
    assert settle(harness, rows, "out") == {"acked": 4, "outputs": 4, "retried": 1, "dead": 1}
    assert len(harness.payloads("out")) == 4
    assert settle(harness, rows, "out") == {"already": 6, "outputs_before": 4}
    assert len(harness.payloads("out")) == 4


def test_record_settled_meanwhile_drops_its_outputs(harness: QueueHarness) -> None:
    harness.number(5)
    one = claimed(harness, 5)
    settle(harness, [RowSettlement(one[1]), RowSettlement(one[3], Outcome.REJECT)])
    rows = [RowSettlement(delivery, outputs=[output(f"o{at}", b"%d" % at)]) for at, delivery in enumerate(one)]
    assert settle(harness, rows, "out") == {"acked": 3, "outputs": 3, "already": 2, "outputs_before": 2}
    assert sorted(harness.payloads("out")) == [b"0", b"2", b"4"]


def test_outputs_of_a_lost_lease_are_not_pushed(harness: QueueHarness) -> None:
    harness.configure("out")
    harness.number(5)
    one = claimed(harness, 5)
    harness.expire()
    rows = [RowSettlement(delivery, outputs=[output(f"o{at}")]) for at, delivery in enumerate(one)]
    assert settle(harness, rows, "out") == {"stale": 5}
    assert harness.payloads("out") == []


def test_record_that_comes_twice_is_done_once(harness: QueueHarness) -> None:
    harness.number(2)
    one = claimed(harness, 2)
    rows = [
        RowSettlement(one[0], outputs=[output("a")]),
        RowSettlement(one[1], outputs=[output("b")]),
        RowSettlement(one[0], outputs=[output("c")]),
    ]
    assert settle(harness, rows, "out") == {"acked": 2, "outputs": 2, "already": 1, "outputs_before": 1}
    assert len(harness.payloads("out")) == 2


def test_output_that_was_pushed_before_is_not_there_twice(harness: QueueHarness) -> None:
    harness.number(2)
    one = claimed(harness, 2)
    harness.send([output("a", b'"before"')], "out")
    rows = [RowSettlement(one[0], outputs=[output("a", b'"again"')]), RowSettlement(one[1], outputs=[output("b")])]
    counts = settle(harness, rows, "out")
    assert counts["acked"] == 2
    assert sorted(harness.payloads("out")) == [b'"before"', b"1"]


def test_output_that_cannot_be_pushed_fails_its_record_only(harness: QueueHarness) -> None:
    harness.configure("out", max_payload_bytes=10)
    harness.number(7)
    one = claimed(harness, 7)
    rows = [RowSettlement(delivery, outputs=[output(f"o{at}")]) for at, delivery in enumerate(one)]
    rows[2] = RowSettlement(one[2], outputs=[output("big", b'"%b"' % (b"x" * 20))])
    rows[5] = RowSettlement(one[5], outputs=[output("fine"), output("y" * 600)])
    assert settle(harness, rows, "out") == {"acked": 5, "outputs": 5, "dead": 2}
    letters = {letter.transaction_id: letter for letter in harness.dead()}
    assert letters["t2"].error.startswith("the output cannot be pushed: ")
    assert "transaction_id is longer than 512 characters" in letters["t5"].error
    assert len(harness.payloads("out")) == 5


def test_settlement_above_a_commit_is_split(harness: QueueHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_settlement, "MOST_ROWS", 7)
    monkeypatch.setattr(bulk_settlement, "MOST_BUNDLES", 4)
    harness.number(50)
    one = claimed(harness, 50)
    rows = [RowSettlement(delivery, outputs=[output(f"o{at}")] if at >= 25 else ()) for at, delivery in enumerate(one)]
    assert settle(harness, rows, "out") == {"acked": 50, "outputs": 25}
    assert len(harness.payloads("out")) == 25


def test_settlement_of_3000_rows_settles_all(harness: QueueHarness) -> None:
    harness.number(3000)
    one = claimed(harness, 3000)
    rows = [
        RowSettlement(delivery, Outcome.RETRY, 3_600_000_000, "no") if at % 10 == 0 else RowSettlement(delivery)
        for at, delivery in enumerate(one)
    ]
    assert settle(harness, rows) == {"acked": 2700, "retried": 300}
    assert harness.counts() == {"acked": 2700, "held": 300}


deliveries = st.builds(lambda lane, seq: ids.delivery_id(3, 4, lane, seq), st.integers(1, 3), st.integers(0, 12))


@given(st.lists(st.builds(RowSettlement, deliveries, st.sampled_from(Outcome)), max_size=40))
def test_grouped_ranges_equal_the_given_rows(rows: list[RowSettlement]) -> None:
    ranges, single = group_ranges(rows)
    again = Counter((row.delivery_id, row.outcome) for row in single)
    again.update((row.delivery_id, row.outcome) for one in ranges for row in one.rows)
    assert again == Counter((row.delivery_id, row.outcome) for row in rows)
    assert all(row.outcome is not Outcome.ACK for row in single)


def test_neighbours_are_one_range() -> None:
    rows = [RowSettlement(ids.delivery_id(3, 4, 5, seq)) for seq in (4, 2, 3, 9, 1)]
    ranges, single = group_ranges(rows)
    assert [(one.lo, one.hi) for one in ranges] == [(1, 5), (9, 10)]
    assert single == []


class Chunks:
    """What tasks make of the deliveries of a claim, cut into chunks as Spark would."""

    def __init__(self, harness: QueueHarness, sizes: dict[str, int]) -> None:
        for partition, size in sizes.items():
            harness.number(size, partition=partition)
        answer: Claimed = harness.do(
            c.Claim(queue="q", group="g", most=1000, bulk=True, exclusivity="partition", owner="spark")
        )
        self.rows = [
            (ids.delivery_id(answer.lease_no, answer.tag, grant.lane, seq), f"{grant.lane}-{seq}", grant.partition)
            for grant in sorted(answer.grants, key=lambda grant: (grant.lane, grant.lo))
            for seq in range(grant.lo, grant.hi)
        ]

    def worked(self, answers: Sequence[Answer], size: int) -> list[map_task.AnsweredChunk]:
        names = ("delivery_id", "message_id", "partition")
        return [
            (
                pa.record_batch(list(map(pa.array, zip(*self.rows[at : at + size], strict=True))), names=names),
                list(part),
            )
            for at in range(0, len(self.rows), size)
            if (part := answers[at : at + size])
        ]


def settled(harness: QueueHarness, chunks: list[map_task.AnsweredChunk], produce: str | None = "out") -> dict[str, int]:
    task = map_task.MapTask(harness.url, "token", None, "g", produce, None, False)  # type: ignore[arg-type]
    return dict(map_task._ChunkSettler(task)._settle(chunks))


REJECTED = Failure(Outcome.REJECT, None, "never", "Bad")


def test_chunks_that_waited_are_one_commit(local_harness: QueueHarness) -> None:
    made = Chunks(local_harness, {"a": 7, "b": 5})
    answers: list[Answer] = [b"1", [b"2", b"3"], None, REJECTED, [], b"4", b"5", b"6", REJECTED, b"7", b"8", b"9"]
    counts = settled(local_harness, made.worked(answers, 3))
    assert counts == {"acked": 10, "dead": 2, "outputs": 9, "rows": 12}
    assert local_harness.counts() == {"acked": 10, "dead": 2}
    assert sorted(map(int, local_harness.payloads("out"))) == list(range(1, 10))
    assert settled(local_harness, made.worked(answers, 4)) == {"already": 12, "outputs_before": 9, "rows": 12}


def test_outputs_of_rows_settled_before_are_not_pushed(local_harness: QueueHarness) -> None:
    made = Chunks(local_harness, {"a": 10})
    assert settle(
        local_harness, [RowSettlement(made.rows[4][0], Outcome.RETRY, 3_600_000_000), RowSettlement(made.rows[7][0])]
    )
    counts = settled(local_harness, made.worked([b"%d" % at for at in range(10)], 5))
    assert counts == {"acked": 8, "already": 2, "outputs": 8, "outputs_before": 2, "rows": 10}
    assert sorted(map(int, local_harness.payloads("out"))) == [0, 1, 2, 3, 5, 6, 8, 9]


def test_output_that_no_queue_takes_is_its_own_records_fault(local_harness: QueueHarness) -> None:
    local_harness.do(c.ConfigureQueue(queue="out", policy={"max_payload_bytes": 100}))
    made = Chunks(local_harness, {"a": 6})
    answers: list[Answer] = [b"1", b"2", b'"%s"' % (b"x" * 200), b"4", b"5", b"6"]
    assert settled(local_harness, made.worked(answers, 2)) == {"acked": 5, "dead": 1, "outputs": 5, "rows": 6}
    assert sorted(map(int, local_harness.payloads("out"))) == [1, 2, 4, 5, 6]


def test_chunks_above_the_bytes_of_a_commit_are_split(
    local_harness: QueueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (map_task, bulk_settlement):
        monkeypatch.setattr(module, "MOST_BYTES", 10)
    made = Chunks(local_harness, {"a": 9})
    counts = settled(local_harness, made.worked([b"1234"] * 8 + [b'"123456789"'], 3))
    assert counts == {"acked": 9, "outputs": 9, "rows": 9}


@pytest.mark.parametrize("order", [[0, 2, 1, 3], [0, 1, 3], [3, 2, 1, 0]])
def test_rows_out_of_order_settle_with_their_own_answers(local_harness: QueueHarness, order: list[int]) -> None:
    made = Chunks(local_harness, {"a": 4})
    made.rows = [made.rows[at] for at in order]
    answers: list[Answer] = [REJECTED if at == 2 else b"%d" % at for at in order]
    settled(local_harness, made.worked(answers, 4))
    assert sorted(map(int, local_harness.payloads("out"))) == sorted(at for at in order if at != 2)
    assert [letter.transaction_id for letter in local_harness.dead()] == ["t2"] * (2 in order)
