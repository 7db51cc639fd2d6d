"""A window gathers bursts: fresh messages of a lane wait until its newest is old enough."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core.errors import BadInput, RolledBack
from ackwise.core.messages import NewMessage
from ackwise.core.policy import QueuePolicy
from tests.engine.store_harness import StoreHarness, counts, entry


def test_lane_opens_when_its_newest_message_is_old_enough(harness: StoreHarness) -> None:
    harness.configure(window_seconds=5)
    harness.push("a")
    harness.advance(4)
    harness.push("b")
    waiting = harness.claim()
    assert waiting.why == "delayed"
    assert waiting.claimed.until == harness.clock.now() + 5_000_000
    harness.advance(4)
    assert harness.claim().why == "delayed"
    harness.push("other", partition="other")
    harness.advance(1)
    assert harness.claim().bodies == ["a", "b"]
    assert harness.claim().why == "delayed"


def test_retry_does_not_wait_for_the_window(harness: StoreHarness) -> None:
    harness.configure(window_seconds=5)
    harness.push("a")
    harness.advance(5)
    first = harness.take()
    harness.push("b")
    harness.retry(first)
    assert harness.claim().bodies == ["a"]


def test_shutting_the_window_opens_the_lane(harness: StoreHarness) -> None:
    harness.configure(window_seconds=500)
    harness.push("a")
    assert harness.claim().why == "delayed"
    harness.configure(window_seconds=0)
    assert harness.claim().bodies == ["a"]


def test_notes_are_kept_one_by_one_and_mean_nothing(harness: StoreHarness) -> None:
    harness.configure(notes={"maxSize": 10, "ttl": 5})
    info = harness.configure(notes={"ttl": None, "colour": "blue"})
    assert info.policy["notes"] == (("colour", "blue"), ("maxSize", 10))
    harness.push("a")
    assert harness.claim().bodies == ["a"]
    with pytest.raises(BadInput):
        harness.configure(notes={"x": ["no", "lists"]})


def test_new_queue_has_makers_policy_and_optional_partition(harness: StoreHarness) -> None:
    made = harness.do(
        c.ConfigureQueue(
            queue="q", create=QueuePolicy(lease_seconds=300.0), policy={"retry_limit": 5}, partition="Default"
        )
    )
    assert (made.created, made.policy["lease_seconds"], made.policy["retry_limit"]) == (True, 300.0, 5)
    (receipt,) = harness.push("a")
    assert receipt.partition_id == made.partition_id
    again = harness.do(c.ConfigureQueue(queue="q", create=QueuePolicy(lease_seconds=1.0), policy={"retry_limit": 6}))
    assert (again.created, again.policy["lease_seconds"]) == (False, 300.0)
    replaced = harness.do(c.ConfigureQueue(queue="q", create=QueuePolicy(lease_seconds=60.0), replace=True))
    assert (replaced.policy["lease_seconds"], replaced.policy["retry_limit"]) == (60.0, 3)


def test_transaction_may_refuse_what_was_settled_before(harness: StoreHarness) -> None:
    harness.number(2)
    held = harness.claim().deliveries
    harness.ack(held[0])
    out = c.Push(queue="next", messages=[NewMessage(b"out")])
    with pytest.raises(RolledBack):
        harness.do(c.Transaction(settlements=[entry(held[0])], pushes=[out], on_already="fail"))
    harness.do(c.Transaction(settlements=[entry(held[0])], pushes=[out]))
    assert counts(harness.group()) == {"acked": 1, "held": 1}
    assert harness.claim(queue="next").bodies == ["out"]
