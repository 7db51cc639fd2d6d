"""What time alone does: retention, max wait, forgetting; and a clock that goes back."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from ackwise.core.limits import MICROS
from ackwise.core.messages import QUEUE_MODE
from tests.contract.support import Desk, counts

DAY = 24 * 3600


def stored(desk: Desk) -> list[str]:
    return [b.message.payload.decode() for b in desk.store.browse(q.Browse(queue="q", limit=1000))]


def test_retention_by_age_counts_the_unread_as_expired(desk: Desk) -> None:
    desk.configure(retention_seconds=60)
    desk.push("old", "older")
    desk.do(c.ConfigureGroup(queue="q", group="g"))
    desk.advance(30)
    desk.push("young")
    desk.advance(30)
    assert desk.sweep("retain") == {"retain": 1}
    assert stored(desk) == ["young"]
    assert counts(desk.group("g")) == {"expired": 2, "unread": 1}
    assert desk.claim(group="g").bodies == ["young"]


def test_retention_never_takes_what_is_held(desk: Desk) -> None:
    desk.configure(retention_seconds=60)
    desk.push("a")
    desk.push("b")
    held = desk.take(seconds=1000)
    desk.advance(100)
    desk.sweep("retain")
    assert stored(desk) == ["a", "b"]
    desk.ack(held)
    desk.sweep("retain")
    assert stored(desk) == []
    assert counts(desk.group()) == {"acked": 1, "expired": 1}


def test_a_new_group_starts_where_the_log_starts(desk: Desk) -> None:
    desk.configure(retention_seconds=60)
    desk.push("a")
    desk.advance(60)
    desk.push("b")
    desk.sweep("retain")
    assert desk.claim(group="late").bodies == ["b"]
    desk.seek("start", group="late")
    assert desk.claim(group="late").bodies == ["b"]
    desk.seek(0, group="late", partition="Default", by="seq")
    assert desk.claim(group="late").bodies == ["b"]
    desk.do(c.ConfigureGroup(queue="q", group="early", start=0))
    assert desk.claim(group="early").bodies == ["b"]


def test_completed_retention_waits_for_every_group(desk: Desk) -> None:
    desk.configure(completed_retention_seconds=60)
    desk.push("a")
    desk.push("b")
    for name in ("one", "two"):
        desk.do(c.ConfigureGroup(queue="q", group=name))
    desk.ack(*desk.claim(group="one").deliveries)
    desk.advance(100)
    desk.sweep("retain")
    assert stored(desk) == ["a", "b"]
    desk.ack(desk.take(group="two"))
    desk.sweep("retain")
    assert stored(desk) == ["b"]
    assert counts(desk.group("two")) == {"acked": 1, "unread": 1}


def test_completed_retention_without_any_group_keeps_everything(desk: Desk) -> None:
    desk.configure(completed_retention_seconds=1)
    desk.push("a")
    desk.advance(1000 * DAY)
    desk.sweep("retain")
    assert stored(desk) == ["a"]


def test_seqs_go_on_after_everything_was_pruned(desk: Desk) -> None:
    desk.configure(retention_seconds=60)
    desk.number(3)
    desk.advance(60)
    desk.sweep("retain")
    (receipt,) = desk.push("next")
    assert receipt.seq == 3
    assert desk.claim().bodies == ["next"]


@pytest.mark.parametrize("duty", ["retain", "max_wait"])
def test_a_small_limit_reaches_every_lane_in_the_end(desk: Desk, duty: str) -> None:
    setting = {"retain": "retention_seconds", "max_wait": "max_wait_seconds"}[duty]
    policy: dict[str, Any] = {setting: 60}
    desk.configure(**policy)
    for i in range(5):
        desk.push("held" if i < 3 else "free", partition=f"p{i}")
    desk.claim(3, seconds=1000)
    desk.advance(60)
    for _ in range(5):
        desk.sweep(duty, limit=2)
    gone = counts(desk.group())
    assert gone == {"held": 3, "expired" if duty == "retain" else "dead": 2}


def test_max_wait_makes_one_letter_per_group_that_has_not_finished(desk: Desk) -> None:
    desk.configure(max_wait_seconds=60)
    desk.push("a")
    for name in ("done", "waiting", "late"):
        desk.do(c.ConfigureGroup(queue="q", group=name))
    desk.ack(desk.take(group="done"))
    desk.retry(desk.take(group="waiting"), delay=1000)
    desk.advance(59)
    assert desk.sweep("max_wait") == {"max_wait": 0}
    desk.advance(1)
    assert desk.sweep("max_wait") == {"max_wait": 2}
    letters = desk.dead(reason="max_wait")
    assert sorted((d.group, d.failures, d.deliveries) for d in letters) == [("late", 0, 0), ("waiting", 1, 1)]
    assert counts(desk.group("done")) == {"acked": 1}
    assert counts(desk.group("late")) == {"dead": 1}
    assert desk.sweep("max_wait") == {"max_wait": 0}


def test_max_wait_without_a_group_is_one_letter_for_queue_mode(desk: Desk) -> None:
    desk.configure(max_wait_seconds=60)
    desk.push("a")
    desk.advance(60)
    desk.sweep("max_wait")
    assert [d.group for d in desk.dead()] == [QUEUE_MODE]
    assert desk.claim().why == "empty"


def test_max_wait_never_takes_what_is_leased(desk: Desk) -> None:
    desk.configure(max_wait_seconds=60)
    desk.number(3)
    held = desk.claim(1, seconds=100).deliveries
    desk.advance(60)
    assert desk.sweep("max_wait") == {"max_wait": 2}
    assert desk.ack(*held) == ["acked"]
    assert counts(desk.group()) == {"acked": 1, "dead": 2}


def test_max_wait_with_dead_letters_off(desk: Desk) -> None:
    desk.configure(max_wait_seconds=60, dead_letters=False)
    desk.push("a")
    desk.retry(desk.take(), delay=1000)
    desk.push("b")
    desk.advance(60)
    desk.sweep("max_wait")
    assert desk.dead() == []
    assert counts(desk.group()) == {"expired": 2}


def test_a_redriven_message_of_a_max_wait_queue_is_swept_again(desk: Desk) -> None:
    desk.configure(max_wait_seconds=60)
    desk.push("a")
    desk.advance(60)
    desk.sweep("max_wait")
    desk.redrive(*desk.dead())
    desk.ack(desk.take())
    assert counts(desk.group()) == {"acked": 1}


def test_tombstones_decide_already_for_a_week(desk: Desk) -> None:
    desk.number(2)
    first = desk.take()
    desk.ack(first)
    desk.take()
    desk.advance(7 * DAY - 1)
    desk.sweep("forget")
    assert desk.ack(first) == ["already"]
    desk.advance(1)
    desk.sweep("forget")
    assert desk.ack(first) == ["unknown"]


def test_lease_numbers_never_start_again(desk: Desk) -> None:
    desk.number(2)
    first = desk.claim(1)
    desk.ack(*first.deliveries)
    desk.advance(30 * DAY)
    desk.sweep()
    assert desk.claim(1).claimed.lease_no > first.claimed.lease_no


def test_an_unknown_duty_is_refused(desk: Desk) -> None:
    with pytest.raises(BadInput, match="no duty 'dream'"):
        desk.sweep("dream")


def test_a_clock_that_goes_back_loses_nothing(desk: Desk) -> None:
    desk.push("a")
    got = desk.take(seconds=10)
    desk.advance(-3600)
    desk.push("b")
    assert desk.ack(got) == ["acked"]
    desk.advance(3600)
    assert desk.claim().bodies == ["b"]


def test_a_beat_is_remembered(desk: Desk) -> None:
    assert desk.do(c.Beat(instance="broker-1")).count == 1
    assert desk.do(c.Beat(instance="broker-1")).count == 1


def test_a_claim_finds_what_is_due_however_many_leases_of_others_ran_out(desk: Desk) -> None:
    desk.number(500, queue="busy")
    desk.push("mine")
    many = [c.Claim(queue="busy", most=1, lease=1 * MICROS) for _ in range(500)]
    assert all(claimed.grants for claimed in desk.together(*many))
    desk.take(seconds=2)
    desk.advance(10)
    assert desk.claim().bodies == ["mine"]
    assert len(desk.store.list_leases(q.ListLeases(limit=1000))) == 500 - 200 + 1
    assert desk.claim(queue="busy", most=500).bodies
    assert desk.store.audit() == []
