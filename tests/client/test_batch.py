"""How many deliveries end in one step."""

from __future__ import annotations

from collections import Counter

import pytest

import ackwise
from ackwise import Item, Reject, Retry, errors
from ackwise.clock import ManualClock
from ackwise.core.settlement import Verdict


def ten(queue: ackwise.Connection) -> ackwise.Batch:
    queue.push_many("q", range(10))
    return queue.claim("q", max=10, lease=10)


def test_batch_is_a_sequence_of_deliveries(queue: ackwise.Connection) -> None:
    batch = ten(queue)
    assert len(batch) == 10
    assert [d.json() for d in batch] == [batch[i].json() for i in range(10)] == list(range(10))
    assert [d.json() for d in batch[2:4]] == [2, 3]
    assert batch[-1].json() == 9
    assert len({d.id for d in batch}) == 10
    with pytest.raises(IndexError):
        batch[10]


def test_deliveries_of_many_lanes_know_their_own(queue: ackwise.Connection) -> None:
    queue.push_many("q", [Item(payload=[p, n], partition=f"p{p}", priority=n % 2) for p in range(5) for n in range(6)])
    batch = queue.claim("q", max=100)
    assert Counter(d.partition for d in batch) == {f"p{p}": 6 for p in range(5)}
    for index, delivery in enumerate(batch):
        part, number = delivery.json()
        assert (delivery.partition, delivery.priority, delivery.seq) == (f"p{part}", number % 2, number // 2)
        assert batch[index].id == delivery.id


def test_leaving_the_block_acks_what_is_left(queue: ackwise.Connection) -> None:
    with ten(queue) as batch:
        batch[3].reject("bad")
        batch[4].retry(error="again")
    stats = queue.groups("q")[0]
    assert (stats.acked, stats.dead, stats.held) == (8, 1, 1)


def test_exception_retries_what_is_left(queue: ackwise.Connection) -> None:
    def work() -> None:
        with ten(queue) as batch:
            for delivery in batch:
                if delivery.json() == 6:
                    raise RuntimeError("at six")
                delivery.ack()

    with pytest.raises(RuntimeError):
        work()
    assert [(d.json(), d.failures) for d in queue.claim("q", max=10)] == [(n, 1) for n in range(6, 10)]


def test_retry_and_reject_choose_for_the_whole_batch(queue: ackwise.Connection, clock: ManualClock) -> None:
    with ten(queue):
        raise Retry(delay=5)
    assert queue.claim("q").empty == "delayed"
    clock.advance(5)
    with queue.claim("q", max=10):
        raise Reject("all of them")
    assert queue.dead_letters("q", limit=1).total == 10


@pytest.mark.parametrize(
    ("verb", "verdict"),
    [("ack", Verdict.ACKED), ("retry", Verdict.RETRIED), ("reject", Verdict.DEAD), ("release", Verdict.RELEASED)],
)
def test_batch_verb_settles_all_deliveries(queue: ackwise.Connection, verb: str, verdict: Verdict) -> None:
    batch = ten(queue)
    assert getattr(batch, verb)() is verdict
    if verb == "ack":
        assert batch.ack() is Verdict.ALREADY
    else:
        with pytest.raises(errors.LeaseLost, match="is not acked"):
            batch.ack()
    assert getattr(batch, verb)() is Verdict.ALREADY or verb == "ack"
    assert queue.leases() == []


def test_empty_batch_says_why(queue: ackwise.Connection) -> None:
    queue.push("q", 1)
    queue.claim("q", exclusivity="partition")
    empty = queue.claim("q", exclusivity="partition")
    assert (len(empty), bool(empty), empty.empty, empty.lease_id) == (0, False, "locked", "")
    assert empty.until is not None
    queue.pause_queue("q")
    assert queue.claim("q").empty == "paused"
    assert empty.ack() is Verdict.ALREADY
    with empty:
        pass


def test_unknown_queue_is_an_error(queue: ackwise.Connection) -> None:
    with pytest.raises(errors.UnknownQueue):
        queue.claim("nowhere")


def test_claim_key_gives_the_same_messages_again(queue: ackwise.Connection) -> None:
    queue.push_many("q", range(4))
    first = queue.claim("q", max=2, key="job-1")
    again = queue.claim("q", max=2, key="job-1")
    assert [d.json() for d in again] == [d.json() for d in first] == [0, 1]
    again.ack()
    assert queue.claim("q", max=2, key="job-1").empty == "ended"
    with pytest.raises(errors.ClaimConflict):
        queue.claim("q", partitions=["a"], key="job-1")


def test_claims_by_partition_priority_and_namespace(queue: ackwise.Connection) -> None:
    queue.push_many("shop.mail", [Item(payload=p, partition=p) for p in "abc"])
    queue.push("shop.mail", "high", partition="a", priority=5)
    assert [d.json() for d in queue.claim("shop.mail", max=9, partitions=["b", "c"])] == ["b", "c"]
    assert [d.json() for d in queue.claim("shop.mail", max=9, priorities=[5])] == ["high"]
    assert [d.json() for d in queue.claim(namespace="shop", max=9)] == ["a"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"max": 0},
        {"max": 10**9},
        {"lease": 0},
        {"lease": 25 * 3600},
        {"lease": float("nan")},
        {"wait": -1},
        {"exclusivity": "all"},
        {"order": "random"},
        {"start": "yesterday"},
        {"owner": "a\0b"},
        {"group": ""},
    ],
)
def test_bad_claims_take_nothing(queue: ackwise.Connection, arguments: dict[str, object]) -> None:
    queue.push("q", 1)
    with pytest.raises(errors.BadInput):
        queue.claim("q", **arguments)  # type: ignore[arg-type]
    assert queue.groups("q") == []


def test_settle_mixes_outcomes_and_answers_each(queue: ackwise.Connection, clock: ManualClock) -> None:
    batch = ten(queue)
    answers = queue.settle(
        [
            (batch[0], "ack"),
            (batch[1].id, Retry(delay=5, error="later")),
            (batch[2], Reject("bad")),
            (batch[3], "release"),
            (batch[4], ValueError("wrong")),
            ("L1-00000000.1.1", "ack"),
        ]
    )
    assert [a.verdict.value for a in answers] == ["acked", "retried", "dead", "released", "retried", "unknown"]


def test_atomic_settle_undoes_itself(queue: ackwise.Connection) -> None:
    batch = ten(queue)
    answers = queue.settle([(batch[0], "ack"), ("L1-00000000.1.1", "ack")], atomic=True)
    assert [a.verdict.value for a in answers] == ["rolled_back", "unknown"]
    assert batch[0].ack() is Verdict.ACKED


@pytest.mark.parametrize("entry", [(None, "ack"), ("x", "done"), ("x",), 5])
def test_bad_settlement_is_refused(queue: ackwise.Connection, entry: object) -> None:
    with pytest.raises(errors.BadInput):
        queue.settle([entry])  # type: ignore[list-item]


def test_leases_by_id(queue: ackwise.Connection, clock: ManualClock) -> None:
    batch = ten(queue)
    clock.advance(5)
    queue.extend(batch.lease_id, 100)
    assert queue.leases("q")[0].deadline > batch.deadline
    assert queue.release(batch.lease_id) is Verdict.RELEASED
    with pytest.raises(errors.LeaseLost):
        queue.extend(batch.lease_id, 5)
    assert len(queue.claim("q", max=10)) == 10
