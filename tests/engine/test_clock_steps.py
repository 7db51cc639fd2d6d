"""A step of the wall clock: durations keep their time, and what people read follows the step."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.clock import wall_now
from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.rows import Page
from ackwise.core.validation import MICROS
from tests.engine.store_harness import StoreHarness

HOUR, DAY = 3600, 86400
STEPS = pytest.mark.parametrize("step", [-HOUR, DAY], ids=["an hour back", "a day ahead"])


def wall(harness: StoreHarness) -> int:
    return wall_now(harness.clock)


# durations


@STEPS
def test_lease_under_a_step_keeps_its_time(harness: StoreHarness, step: int) -> None:
    harness.clock.step_wall(step)
    harness.push("a")
    held = harness.take(seconds=60)
    harness.clock.step_wall(step)
    harness.advance(59)
    assert harness.claim().bodies == []
    assert harness.sweep("expire") == {"expire": 0}
    harness.advance(1)
    assert harness.claim().bodies == ["a"]
    assert harness.ack(held) == ["stale"]


@STEPS
def test_retry_delay_under_a_step_keeps_its_time(harness: StoreHarness, step: int) -> None:
    harness.clock.step_wall(step)
    harness.push("a")
    harness.retry(harness.take(), delay=60)
    harness.clock.step_wall(step)
    harness.advance(59)
    hand = harness.claim()
    assert (hand.bodies, hand.claimed.until) == ([], harness.clock.now() + MICROS)
    harness.advance(1)
    assert harness.claim().bodies == ["a"]


@STEPS
def test_delayed_push_under_a_step_keeps_its_time(harness: StoreHarness, step: int) -> None:
    harness.clock.step_wall(step)
    (receipt,) = harness.push("a", delay=60, txid="a")
    harness.clock.step_wall(step)
    found = harness.store.ask(q.FindMessage(partition_id=receipt.partition_id, transaction_id="a"))
    assert found.due_at == wall(harness) + 60 * MICROS
    harness.advance(59)
    assert harness.claim().bodies == []
    harness.advance(1)
    assert harness.claim().bodies == ["a"]


@STEPS
def test_extension_after_a_step_counts_from_now(harness: StoreHarness, step: int) -> None:
    harness.push("a")
    held = harness.claim(seconds=60)
    harness.clock.step_wall(step)
    extended = harness.do(c.Extend(lease_id=held.claimed.lease_id, lease=30 * MICROS))
    assert extended.deadline == harness.clock.now() + 30 * MICROS


@STEPS
def test_heartbeat_under_a_step_keeps_a_broker_alive(harness: StoreHarness, step: int) -> None:
    owner = f"{harness.store.instance}#1"
    harness.do(c.Beat(instance=harness.store.instance))
    harness.push("a")
    harness.take(owner=owner, seconds=1000)
    harness.clock.step_wall(step)
    harness.do(c.Beat(instance="another"))
    assert harness.claim().bodies == []


def test_ended_lease_is_kept_by_the_anchored_clock(harness: StoreHarness) -> None:
    harness.push("a", "b")
    first = harness.take()
    harness.ack(first)
    harness.take()
    harness.clock.step_wall(30 * DAY)
    harness.sweep("forget")
    assert harness.ack(first) == ["already"]


# instants that people read


@STEPS
def test_lease_is_shown_by_the_stepped_wall_clock(harness: StoreHarness, step: int) -> None:
    (receipt,) = harness.push("a", txid="a")
    harness.claim(seconds=60)
    harness.clock.step_wall(step)
    made_at, deadline = wall(harness), wall(harness) + 60 * MICROS
    (row,) = harness.store.ask(q.ListLeases())
    assert (row.made_at, row.deadline) == (made_at, deadline)
    (oldest,) = harness.store.ask(q.ListOldestLeases())
    assert oldest == row
    (depth,) = harness.store.ask(q.ListDepths(queue="q"))
    assert [(lease.made_at, lease.deadline) for lease in depth.leases] == [(made_at, deadline)]
    (place,) = harness.store.ask(q.ListPlaces(queue="q"))
    assert place.lease is not None
    assert (place.lease.made_at, place.lease.deadline) == (made_at, deadline)
    found = harness.store.ask(q.FindMessage(partition_id=receipt.partition_id, transaction_id="a"))
    assert [view.deadline for view in found.groups] == [deadline]
    harness.do(c.Sweep(duties=("expire",)))
    harness.advance(60)
    harness.sweep("expire")
    (ended,) = harness.store.ask(q.ListLeases(live_only=False))
    assert ended.ended_at == wall(harness)


def test_oldest_leases_are_paged_across_a_step(harness: StoreHarness) -> None:
    ids = []
    for name in "abc":
        harness.push(name)
        ids.append(harness.claim(1, seconds=1000).claimed.lease_id)
        harness.advance(1)
    first = harness.store.ask(q.ListOldestLeases(limit=1))
    harness.clock.step_wall(-HOUR)
    assert isinstance(first, Page)
    rest = harness.store.ask(q.ListOldestLeases(limit=5, after=first.next))
    assert [lease.lease_id for lease in (*first, *rest)] == ids


@STEPS
def test_messages_and_letters_are_dated_by_the_wall_clock(harness: StoreHarness, step: int) -> None:
    harness.clock.step_wall(step)
    harness.push("a")
    held = harness.take()
    assert held.message.created_at == wall(harness)
    harness.reject(held)
    (letter,) = harness.dead()
    assert letter.dead_at == wall(harness)
    assert [entry["at"] for entry in letter.history] == [wall(harness)]
    (minute,) = {row.minute for row in harness.store.ask(q.ReadLedger())}
    assert minute == wall(harness) // (60 * MICROS) * 60 * MICROS
    assert harness.store.ask(q.GetQueue(queue="q")).created_at == wall(harness)


def test_seek_to_an_instant_follows_the_wall_clock(harness: StoreHarness) -> None:
    harness.push("a")
    harness.claim(group="g")
    harness.clock.step_wall(DAY)
    at = wall(harness)
    harness.push("b")
    harness.seek(at, group="g")
    assert harness.claim(group="g").bodies == ["b"]


def test_retention_after_a_step_follows_the_wall_clock(harness: StoreHarness) -> None:
    harness.configure(retention_seconds=HOUR)
    harness.push("a")
    harness.clock.step_wall(HOUR - 1)
    harness.sweep("retain")
    assert harness.store.ask(q.QueueStats(queue="q")).messages == 1
    harness.clock.step_wall(1)
    harness.sweep("retain")
    assert harness.store.ask(q.QueueStats(queue="q")).messages == 0


def test_max_wait_after_a_step_follows_the_wall_clock(harness: StoreHarness) -> None:
    harness.configure(max_wait_seconds=HOUR)
    harness.push("a")
    harness.clock.step_wall(HOUR)
    assert harness.sweep("max_wait") == {"max_wait": 1}


@pytest.mark.parametrize("policy", [{"delay_seconds": 60}, {"window_seconds": 60}])
def test_queue_delay_after_a_step_follows_creation(harness: StoreHarness, policy: dict[str, Any]) -> None:
    harness.configure(**policy)
    harness.push("a")
    harness.clock.step_wall(30)
    hand = harness.claim()
    assert (hand.bodies, hand.claimed.until) == ([], harness.clock.now() + 30 * MICROS)
    harness.advance(30)
    (held,) = harness.claim().deliveries
    harness.ack(held)
    harness.clock.step_wall(-HOUR)
    harness.push("b")
    harness.advance(59)
    assert harness.claim().bodies == []
    harness.advance(1)
    assert harness.claim().bodies == ["b"]


def test_dedupe_window_after_a_step_follows_creation(harness: StoreHarness) -> None:
    harness.configure(dedupe_seconds=HOUR)
    harness.push("a", txid="a")
    harness.clock.step_wall(HOUR - 1)
    assert [receipt.status for receipt in harness.push("a", txid="a")] == ["duplicate"]
    harness.clock.step_wall(1)
    assert [receipt.status for receipt in harness.push("a", txid="a")] == ["queued"]
