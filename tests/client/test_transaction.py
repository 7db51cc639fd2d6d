"""Ack and push in one step."""

from __future__ import annotations

import pytest

import ackwise
from ackwise import errors
from ackwise.clock import ManualClock
from ackwise.core.settlement import Verdict


def three(queue: ackwise.Connection) -> ackwise.Batch:
    queue.push_many("in", range(3))
    return queue.claim("in", max=3, lease=10)


def test_transaction_commits_settlements_and_pushes(queue: ackwise.Connection) -> None:
    first, second, third = three(queue)
    step = queue.transaction().ack(first).retry(second, error="again").reject(third, "bad")
    step.push("out", {"of": 0}, partition="p").push("out", {"of": 1}).push("log", b"x", transaction_id="t")
    done = step.commit()
    assert [s.verdict.value for s in done.settled] == ["acked", "retried", "dead"]
    assert [[r.status for r in receipts] for receipts in done.pushed] == [["queued", "queued"], ["queued"]]
    assert (first.verdict, second.verdict, third.verdict) == (Verdict.ACKED, Verdict.RETRIED, Verdict.DEAD)
    assert (queue.stats("out").messages, queue.stats("log").messages) == (2, 1)


def test_transaction_block_commits_at_its_end(queue: ackwise.Connection) -> None:
    batch = three(queue)
    with queue.transaction() as step:
        step.ack(batch).push("out", 1)
        assert len(queue.leases()) == 1
    assert (queue.leases(), queue.stats("out").messages) == ([], 1)
    with queue.transaction():
        pass


def test_exception_in_the_block_commits_nothing(queue: ackwise.Connection) -> None:
    batch = three(queue)

    def work() -> None:
        with queue.transaction() as step:
            step.ack(batch).push("out", 1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    assert [info.name for info in queue.queues()] == ["in"]
    assert batch.ack() is Verdict.ACKED


def test_refused_settlement_undoes_the_pushes(queue: ackwise.Connection, clock: ManualClock) -> None:
    batch = three(queue)
    clock.advance(10)
    with pytest.raises(errors.RolledBack, match="stale"):
        queue.transaction().push("out", 1).ack(batch[0]).commit()
    with pytest.raises(errors.LeaseLost, match="invalid_lease"):
        queue.transaction().push("out", 1).require(batch).commit()
    assert [info.name for info in queue.queues()] == ["in"]


def test_duplicates_are_left_out_or_fail_the_whole(queue: ackwise.Connection) -> None:
    batch = three(queue)
    queue.push("out", 1, transaction_id="t")
    with pytest.raises(errors.RolledBack, match="duplicate"):
        queue.transaction().ack(batch[0]).push("out", 1, transaction_id="t").commit(on_duplicate="fail")
    done = queue.transaction().ack(batch[0]).push("out", 1, transaction_id="t").commit()
    assert (done.settled[0].verdict, done.pushed[0][0].status) == (Verdict.ACKED, "duplicate")


def test_delivery_settled_in_transaction_is_not_settled_again(queue: ackwise.Connection) -> None:
    with three(queue)[0] as delivery:
        queue.transaction().retry(delivery, error="elsewhere").commit()
    assert queue.groups("in")[0].acked == 0
