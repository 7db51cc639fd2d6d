"""A window gathers bursts: fresh messages of a lane wait until its newest is old enough."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core.errors import BadInput, RolledBack
from ackwise.core.messages import NewMessage
from ackwise.core.policy import QueuePolicy
from tests.contract.support import Desk, counts, entry


def test_a_lane_opens_when_its_newest_message_is_old_enough(desk: Desk) -> None:
    desk.configure(window_seconds=5)
    desk.push("a")
    desk.advance(4)
    desk.push("b")
    waiting = desk.claim()
    assert waiting.why == "delayed"
    assert waiting.claimed.until == desk.clock.now() + 5_000_000
    desk.advance(4)
    assert desk.claim().why == "delayed"
    desk.push("other", partition="other")
    desk.advance(1)
    assert desk.claim().bodies == ["a", "b"]
    assert desk.claim().why == "delayed"


def test_a_retry_does_not_wait_for_the_window(desk: Desk) -> None:
    desk.configure(window_seconds=5)
    desk.push("a")
    desk.advance(5)
    first = desk.take()
    desk.push("b")
    desk.retry(first)
    assert desk.claim().bodies == ["a"]


def test_shutting_the_window_opens_the_lane(desk: Desk) -> None:
    desk.configure(window_seconds=500)
    desk.push("a")
    assert desk.claim().why == "delayed"
    desk.configure(window_seconds=0)
    assert desk.claim().bodies == ["a"]


def test_notes_are_kept_one_by_one_and_mean_nothing(desk: Desk) -> None:
    desk.configure(notes={"maxSize": 10, "ttl": 5})
    info = desk.configure(notes={"ttl": None, "colour": "blue"})
    assert info.policy["notes"] == (("colour", "blue"), ("maxSize", 10))
    desk.push("a")
    assert desk.claim().bodies == ["a"]
    with pytest.raises(BadInput):
        desk.configure(notes={"x": ["no", "lists"]})


def test_a_new_queue_begins_with_what_its_maker_wants_and_may_have_a_partition(desk: Desk) -> None:
    made = desk.do(
        c.ConfigureQueue(
            queue="q", create=QueuePolicy(lease_seconds=300.0), policy={"retry_limit": 5}, partition="Default"
        )
    )
    assert (made.created, made.policy["lease_seconds"], made.policy["retry_limit"]) == (True, 300.0, 5)
    (receipt,) = desk.push("a")
    assert receipt.partition_id == made.partition_id
    again = desk.do(c.ConfigureQueue(queue="q", create=QueuePolicy(lease_seconds=1.0), policy={"retry_limit": 6}))
    assert (again.created, again.policy["lease_seconds"]) == (False, 300.0)
    replaced = desk.do(c.ConfigureQueue(queue="q", create=QueuePolicy(lease_seconds=60.0), replace=True))
    assert (replaced.policy["lease_seconds"], replaced.policy["retry_limit"]) == (60.0, 3)


def test_a_transaction_may_refuse_what_was_settled_before(desk: Desk) -> None:
    desk.number(2)
    held = desk.claim().deliveries
    desk.ack(held[0])
    out = c.Push(queue="next", messages=[NewMessage(b"out")])
    with pytest.raises(RolledBack):
        desk.do(c.Transaction(settlements=[entry(held[0])], pushes=[out], on_already="fail"))
    desk.do(c.Transaction(settlements=[entry(held[0])], pushes=[out]))
    assert counts(desk.group()) == {"acked": 1, "held": 1}
    assert desk.claim(queue="next").bodies == ["out"]
