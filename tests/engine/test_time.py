"""What time alone does: retention, max wait, forgetting; and a clock that goes back."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.validation import MICROS
from tests.engine.store_harness import StoreHarness, counts

DAY = 24 * 3600


def stored(harness: StoreHarness) -> list[str]:
    return [b.message.payload.decode() for b in harness.store.ask(q.Browse(queue="q", limit=1000))]


def test_retention_by_age_counts_the_unread_as_expired(harness: StoreHarness) -> None:
    harness.configure(retention_seconds=60)
    harness.push("old", "older")
    harness.do(c.ConfigureGroup(queue="q", group="g"))
    harness.advance(30)
    harness.push("young")
    harness.advance(30)
    assert harness.sweep("retain") == {"retain": 1}
    assert stored(harness) == ["young"]
    assert counts(harness.group("g")) == {"expired": 2, "unread": 1}
    assert harness.claim(group="g").bodies == ["young"]


def test_retention_never_takes_what_is_held(harness: StoreHarness) -> None:
    harness.configure(retention_seconds=60)
    harness.push("a")
    harness.push("b")
    held = harness.take(seconds=1000)
    harness.advance(100)
    harness.sweep("retain")
    assert stored(harness) == ["a", "b"]
    harness.ack(held)
    harness.sweep("retain")
    assert stored(harness) == []
    assert counts(harness.group()) == {"acked": 1, "expired": 1}


def test_new_group_starts_where_the_log_starts(harness: StoreHarness) -> None:
    harness.configure(retention_seconds=60)
    harness.push("a")
    harness.advance(60)
    harness.push("b")
    harness.sweep("retain")
    assert harness.claim(group="late").bodies == ["b"]
    harness.seek("start", group="late")
    assert harness.claim(group="late").bodies == ["b"]
    harness.seek(0, group="late", partition="Default", by="seq")
    assert harness.claim(group="late").bodies == ["b"]
    harness.do(c.ConfigureGroup(queue="q", group="early", start=0))
    assert harness.claim(group="early").bodies == ["b"]


def test_completed_retention_waits_for_every_group(harness: StoreHarness) -> None:
    harness.configure(completed_retention_seconds=60)
    harness.push("a")
    harness.push("b")
    for name in ("one", "two"):
        harness.do(c.ConfigureGroup(queue="q", group=name))
    harness.ack(*harness.claim(group="one").deliveries)
    harness.advance(100)
    harness.sweep("retain")
    assert stored(harness) == ["a", "b"]
    harness.ack(harness.take(group="two"))
    harness.sweep("retain")
    assert stored(harness) == ["b"]
    assert counts(harness.group("two")) == {"acked": 1, "unread": 1}


def test_completed_retention_without_any_group_keeps_everything(harness: StoreHarness) -> None:
    harness.configure(completed_retention_seconds=1)
    harness.push("a")
    harness.advance(1000 * DAY)
    harness.sweep("retain")
    assert stored(harness) == ["a"]


def test_seqs_go_on_after_everything_was_pruned(harness: StoreHarness) -> None:
    harness.configure(retention_seconds=60)
    harness.number(3)
    harness.advance(60)
    harness.sweep("retain")
    (receipt,) = harness.push("next")
    assert receipt.seq == 3
    assert harness.claim().bodies == ["next"]


@pytest.mark.parametrize("duty", ["retain", "max_wait"])
def test_small_limit_reaches_every_lane_in_the_end(harness: StoreHarness, duty: str) -> None:
    setting = {"retain": "retention_seconds", "max_wait": "max_wait_seconds"}[duty]
    policy: dict[str, Any] = {setting: 60}
    harness.configure(**policy)
    for i in range(5):
        harness.push("held" if i < 3 else "free", partition=f"p{i}")
    harness.claim(3, seconds=1000)
    harness.advance(60)
    for _ in range(5):
        harness.sweep(duty, limit=2)
    gone = counts(harness.group())
    assert gone == {"held": 3, "expired" if duty == "retain" else "dead": 2}


def test_max_wait_buries_once_per_unfinished_group(harness: StoreHarness) -> None:
    harness.configure(max_wait_seconds=60)
    harness.push("a")
    for name in ("done", "waiting", "late"):
        harness.do(c.ConfigureGroup(queue="q", group=name))
    harness.ack(harness.take(group="done"))
    harness.retry(harness.take(group="waiting"), delay=1000)
    harness.advance(59)
    assert harness.sweep("max_wait") == {"max_wait": 0}
    harness.advance(1)
    assert harness.sweep("max_wait") == {"max_wait": 2}
    letters = harness.dead(reason="max_wait")
    assert sorted((d.group, d.failures, d.deliveries) for d in letters) == [("late", 0, 0), ("waiting", 1, 1)]
    assert counts(harness.group("done")) == {"acked": 1}
    assert counts(harness.group("late")) == {"dead": 1}
    assert harness.sweep("max_wait") == {"max_wait": 0}


def test_max_wait_without_a_group_is_one_letter_for_queue_mode(harness: StoreHarness) -> None:
    harness.configure(max_wait_seconds=60)
    harness.push("a")
    harness.advance(60)
    harness.sweep("max_wait")
    assert [d.group for d in harness.dead()] == [QUEUE_MODE]
    assert harness.claim().why == "empty"


def test_max_wait_never_takes_what_is_leased(harness: StoreHarness) -> None:
    harness.configure(max_wait_seconds=60)
    harness.number(3)
    held = harness.claim(1, seconds=100).deliveries
    harness.advance(60)
    assert harness.sweep("max_wait") == {"max_wait": 2}
    assert harness.ack(*held) == ["acked"]
    assert counts(harness.group()) == {"acked": 1, "dead": 2}


def test_max_wait_with_dead_letters_off(harness: StoreHarness) -> None:
    harness.configure(max_wait_seconds=60, dead_letters=False)
    harness.push("a")
    harness.retry(harness.take(), delay=1000)
    harness.push("b")
    harness.advance(60)
    harness.sweep("max_wait")
    assert harness.dead() == []
    assert counts(harness.group()) == {"expired": 2}


def test_redriven_message_of_a_max_wait_queue_is_swept_again(harness: StoreHarness) -> None:
    harness.configure(max_wait_seconds=60)
    harness.push("a")
    harness.advance(60)
    harness.sweep("max_wait")
    harness.redrive(*harness.dead())
    harness.ack(harness.take())
    assert counts(harness.group()) == {"acked": 1}


def test_tombstones_decide_already_for_a_week(harness: StoreHarness) -> None:
    harness.number(2)
    first = harness.take()
    harness.ack(first)
    harness.take()
    harness.advance(7 * DAY - 1)
    harness.sweep("forget")
    assert harness.ack(first) == ["already"]
    harness.advance(1)
    harness.sweep("forget")
    assert harness.ack(first) == ["unknown"]


def test_lease_numbers_never_start_again(harness: StoreHarness) -> None:
    harness.number(2)
    first = harness.claim(1)
    harness.ack(*first.deliveries)
    harness.advance(30 * DAY)
    harness.sweep()
    assert harness.claim(1).claimed.lease_no > first.claimed.lease_no


def test_unknown_duty_is_refused(harness: StoreHarness) -> None:
    with pytest.raises(BadInput, match="unknown duty 'dream'"):
        harness.sweep("dream")


def test_clock_that_goes_back_loses_nothing(harness: StoreHarness) -> None:
    harness.push("a")
    got = harness.take(seconds=10)
    harness.advance(-3600)
    harness.push("b")
    assert harness.ack(got) == ["acked"]
    harness.advance(3600)
    assert harness.claim().bodies == ["b"]


def test_beat_is_remembered(harness: StoreHarness) -> None:
    assert harness.do(c.Beat(instance="broker-1")).count == 1
    assert harness.do(c.Beat(instance="broker-1")).count == 1


def test_claim_finds_due_messages_among_many_expired_leases(harness: StoreHarness) -> None:
    harness.number(500, queue="busy")
    harness.push("mine")
    many = [c.Claim(queue="busy", most=1, lease=1 * MICROS) for _ in range(500)]
    assert all(claimed.grants for claimed in harness.together(*many))
    harness.take(seconds=2)
    harness.advance(10)
    assert harness.claim().bodies == ["mine"]
    assert len(harness.store.ask(q.ListLeases(limit=1000))) == 500 - 200 + 1
    assert harness.claim(queue="busy", most=500).bodies
    assert harness.store.audit() == []
