"""The writer's memory: claims ask less, and still see every expiry, promotion and queue lease in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ackwise.clock import ManualClock
from ackwise.core import commands as c
from ackwise.core.validation import MICROS
from ackwise.store.sqlite import SQLiteStore
from ackwise.store.sqlite.session import STATEMENTS
from tests.engine.store_harness import StoreHarness, entry


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def harness(tmp_path: Path, clock: ManualClock) -> Iterator[StoreHarness]:
    store = SQLiteStore(f"sqlite:///{tmp_path}/q.db?durability=normal", clock=clock, seed=1)
    yield StoreHarness(store, clock)
    assert store.audit() == []
    store.close()


@pytest.fixture
def other(tmp_path: Path, clock: ManualClock, harness: StoreHarness) -> Iterator[StoreHarness]:
    """Another process on the same file."""
    store = SQLiteStore(f"sqlite:///{tmp_path}/q.db?durability=normal", clock=clock, seed=2)
    yield StoreHarness(store, clock)
    store.close()


def statements_of_claim(harness: StoreHarness) -> Counter[str]:
    assert isinstance(harness.store, SQLiteStore)
    session = harness.store._writer._session
    names = {text: name for name, text in STATEMENTS.items()}
    asked: Counter[str] = Counter()
    execute = session._execute

    def count(text: str, params: Any = ()) -> Any:
        asked[names.get(text, text)] += 1
        return execute(text, params)

    session._execute = count  # type: ignore[assignment]
    harness.take()
    session._execute = execute
    return asked


QUESTIONS = ("leases_expired", "scheduled_due", "lease_any_whole_queue", "lease_next")


def test_second_claim_asks_nothing_that_the_writer_knows(harness: StoreHarness) -> None:
    harness.number(3)
    first, second = statements_of_claim(harness), statements_of_claim(harness)
    assert [first[name] for name in QUESTIONS] == [1, 1, 1, 1]
    assert [second[name] for name in QUESTIONS] == [0, 0, 0, 0]


def test_expiry_is_seen_at_its_instant(harness: StoreHarness) -> None:
    harness.push("a")
    harness.take(seconds=10)
    assert not harness.claim()
    harness.clock.advance(9)
    assert not harness.claim()
    harness.clock.advance(1)
    assert harness.take()


def test_deadline_that_moves_closer_is_seen(harness: StoreHarness) -> None:
    harness.push("a")
    lease = harness.claim(1, seconds=100).claimed.lease_id
    assert not harness.claim()
    harness.do(c.Extend(lease_id=lease, lease=2 * MICROS))
    harness.clock.advance(2)
    assert harness.take()


def test_scheduled_message_is_seen_at_its_instant(harness: StoreHarness) -> None:
    harness.configure()
    assert not harness.claim()
    harness.push("late", delay=5)
    assert not harness.claim()
    harness.clock.advance(5)
    assert harness.take()


def test_queue_lease_keeps_others_out_and_ends(harness: StoreHarness) -> None:
    harness.push("a", "b")
    first = harness.take()
    harness.ack(first)
    held = harness.claim(1, exclusivity="queue", owner="one")
    assert not harness.claim(1, owner="two")
    harness.ack(*held.deliveries)
    harness.push("c")
    assert harness.take(owner="two")


def test_claims_and_pushes_of_another_process_are_seen(harness: StoreHarness, other: StoreHarness) -> None:
    harness.push("a", "b")
    first = harness.claim(1, seconds=1000)
    second = other.claim(1, seconds=1)
    other.push("late", delay=2)
    harness.clock.advance(1)
    third = harness.claim(1, seconds=1000)
    harness.clock.advance(1)
    fourth = harness.claim(1, seconds=1000)
    hands = (first, second, third, fourth)
    assert [hand.bodies for hand in hands] == [["a"], ["b"], ["b"], ["late"]]
    assert len({hand.lease_id for hand in hands}) == 4


def test_undone_settlement_leaves_no_wrong_memory(harness: StoreHarness) -> None:
    harness.push("a")
    delivery = harness.take(seconds=5)
    harness.settle(entry(delivery, "ack"), entry("1.1.1.1", "ack"), atomic=True)
    assert not harness.claim()
    harness.clock.advance(5)
    assert harness.take()


def test_turn_that_fails_leaves_no_wrong_memory(harness: StoreHarness, other: StoreHarness) -> None:
    harness.push("a")
    delivery = harness.take(seconds=5)
    ack_and_claim = [c.Settle(entries=[entry(delivery, "ack")]), c.Claim(queue="q", most=1)]
    prepared = other.store.prepare(ack_and_claim)
    prepared.abandon()
    other.clock.advance(5)
    assert other.take()
