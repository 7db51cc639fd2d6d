"""Neighbouring acks that are settled as one range: the same answers and rows as entry by entry."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ackwise.clock import ManualClock
from ackwise.core import commands as c
from ackwise.core.answers import Settled
from ackwise.core.messages import NewMessage
from ackwise.engine import ack_runs
from ackwise.engine.span_settlement import settle_each
from ackwise.store.sqlite import SQLiteStore
from ackwise.store.turn_runner import WriterTurn
from tests.engine.store_harness import Delivery, Hand, StoreHarness, entry

LANES = "lane IN (SELECT l.id FROM lane AS l JOIN queue AS q ON q.id = l.queue WHERE q.name = :queue)"
STATEMENTS = (
    "SELECT lane, grp, epoch, first, next, held, acked, dead, skipped, expired, leased, exclusive, exclusive_owner, "
    f"ready_at, floor, settled_at, last_seq, last_at, nacked FROM cursor WHERE {LANES} ORDER BY lane, grp",
    f"SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, probation, history FROM span WHERE {LANES} "
    "ORDER BY lane, grp, hi",
    "SELECT no, grp, deadline, ended_at, end_kind, lost, returned, dropped FROM lease "
    "WHERE queue = (SELECT id FROM queue WHERE name = :queue) ORDER BY no",
    f"SELECT lane, seq, epoch, grp, reason, fails, delivs, history FROM dead WHERE {LANES} ORDER BY lane, seq, grp",
    f"SELECT lane, grp, lo, hi FROM dropped WHERE {LANES} ORDER BY lane, grp, lo",
)
"""The rows that a settlement changes, without random ids."""
numbers = count()
DEEP = os.environ.get("ACKWISE_HYPOTHESIS") == "deep"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[StoreHarness]:
    clock = ManualClock()
    store = SQLiteStore(f"sqlite:///{tmp_path}/queues.db?durability=normal", clock=clock, seed=1)
    yield StoreHarness(store, clock)
    assert store.audit() == []
    store.close()


class Work(NamedTuple):
    """What happens to a queue before the settlement, and the entries of the settlement."""

    policy: dict[str, Any]
    failed_first: int
    """Messages at the start of a lane that the first claim retries, so that the second claim gets them again."""
    yields: bool
    group: str
    expires: bool
    entries: list[tuple[int, str, str]]


picks = st.integers(0, 30)
ways = st.sampled_from(["delivery"] * 6 + ["range", "whole range", "lease", "ids", "ids of lease", "unheld"])
outcomes = st.sampled_from(["ack"] * 6 + ["retry", "reject", "release"])
neighbours = st.integers(0, 15).flatmap(
    lambda first: st.permutations([(pick, "delivery", "ack") for pick in range(first, first + 6)])
)
works = st.builds(
    Work,
    policy=st.fixed_dictionaries(
        {
            "dead_letters": st.booleans(),
            "exclusivity": st.sampled_from(["none", "none", "partition"]),
            "on_failure": st.sampled_from(["skip", "skip", "skip", "rewind"]),
            "retry_limit": st.sampled_from([1, 3]),
        }
    ),
    failed_first=st.sampled_from([0, 0, 1, 3]),
    yields=st.booleans(),
    group=st.sampled_from(["g", "g", "other"]),
    expires=st.booleans(),
    entries=neighbours
    | st.lists(st.tuples(picks, st.sampled_from(["delivery", "delivery", "range"]), st.just("ack")), min_size=3)
    | st.lists(st.tuples(picks, ways, outcomes), min_size=2, max_size=14),
)


def prepare(harness: StoreHarness, queue: str, work: Work) -> list[c.Settlement]:
    """Push, claim twice, and build the entries from the deliveries of both claims."""
    harness.configure(queue, **work.policy)
    for partition, priority, size in (("a", 0, 8), ("b", 0, 2), ("b", 1, 2)):
        batch = [NewMessage(str(i).encode(), partition, priority, f"{partition}{priority}{i}") for i in range(size)]
        harness.send(batch, queue)
    first = harness.claim(10, queue=queue, group="g", seconds=5, yields=work.yields)
    if work.failed_first:
        harness.retry(c.ByRange(first.lease_id, first.deliveries[0].lane, 0, work.failed_first))
    second = harness.claim(9, queue=queue, group=work.group, seconds=50)
    hands = [hand for hand in (first, second) if hand.deliveries]
    return [settlement(hands, *choice) for choice in work.entries]


def settlement(hands: list[Hand], pick: int, way: str, outcome: str) -> c.Settlement:
    everything = [delivery for hand in hands for delivery in hand.deliveries]
    return entry(selector(everything[pick % len(everything)], way, length=1 + pick % 3), outcome)


def selector(delivery: Delivery, way: str, length: int) -> c.Selector:
    end = delivery.seq + length
    ids = (delivery.partition_id, delivery.transaction_id)
    made: dict[str, c.Selector] = {
        "delivery": c.ByDelivery(delivery.id),
        "range": c.ByRange(delivery.lease_id, delivery.lane, delivery.seq, end),
        "whole range": c.ByRange(delivery.lease_id, delivery.lane, delivery.seq, end, whole=True),
        "lease": c.ByLease(delivery.lease_id),
        "ids": c.ByTransaction(*ids, group="g"),
        "ids of lease": c.ByTransaction(*ids, lease_id=delivery.lease_id),
        "unheld": c.ByTransaction(*ids, group="g", unheld=True),
    }
    return made[way]


def shown(answers: list[Settled]) -> list[object]:
    """Answers without the ids of dead letters, which are random."""
    return [
        (a.verdict, a.count, a.lease_ended, a.reason, a.dead, a.failures, len(a.dead_ids), a.unacked, a.lease_id)
        for a in answers
    ]


def tried(harness: StoreHarness, queue: str, entries: list[c.Settlement]) -> tuple[object, ...]:
    """Answers, rows of the queue and counts of a settlement that is rolled back."""
    prepared = harness.store.prepare([c.Settle(entries=entries)])
    try:
        assert isinstance(prepared, WriterTurn)
        results: list[Any] = prepared.results
        (answers,) = results
        turn = prepared.turn
        rows = [turn.session.look(statement, {"queue": queue}, tuple, None) for statement in STATEMENTS]
        return shown(answers), rows, turn.tally
    finally:
        prepared.abandon()


@pytest.mark.timeout(0)
@settings(
    max_examples=5000 if DEEP else 150,
    derandomize=not DEEP,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(work=works)
def test_runs_answer_and_store_like_single_entries(harness: StoreHarness, work: Work) -> None:
    queue = f"q{next(numbers)}"
    entries = prepare(harness, queue, work)
    harness.advance(6 if work.expires else 0)
    with patch.object(ack_runs, "settle_in_runs", settle_each):
        one_by_one = tried(harness, queue, entries)
    for in_runs, expected in zip(tried(harness, queue, entries), one_by_one, strict=True):
        assert in_runs == expected
    harness.settle(*entries)
