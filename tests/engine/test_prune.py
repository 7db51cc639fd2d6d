"""Pruning of messages that are archived elsewhere: never of messages that a group has not finished."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, UnknownQueue
from ackwise.core.rows import LaneRow
from tests.engine.store_harness import StoreHarness


def lane(harness: StoreHarness, **query: object) -> LaneRow:
    (row,) = harness.store.ask(q.ListLanes(queue="q", **query))  # type: ignore[arg-type]
    return row


def settled(harness: StoreHarness) -> int | None:
    return lane(harness, settled=True).settled


def prune(harness: StoreHarness, below: int) -> int:
    counted: int = harness.do(c.PruneQueue(queue="q", lanes={lane(harness).lane: below})).count
    return counted


def pushed_apart(harness: StoreHarness, count: int) -> None:
    """Each in a segment of its own."""
    for number in range(count):
        harness.push(str(number))


def test_settled_is_where_the_slowest_group_is(harness: StoreHarness) -> None:
    harness.number(6)
    assert lane(harness).settled is None
    assert settled(harness) == 0  # without a group nothing is finished
    first, *rest = harness.claim(4, group="one").deliveries
    harness.ack(*rest)
    assert settled(harness) == 0
    harness.reject(first)  # dead is finished
    assert settled(harness) == 4
    harness.retry(*harness.claim(2, group="two").deliveries, delay=60)
    assert settled(harness) == 0  # waiting is not
    harness.advance(60)
    harness.ack(*harness.claim(2, group="two").deliveries)
    assert settled(harness) == 2


def test_prune_removes_named_and_finished_messages_only(harness: StoreHarness) -> None:
    pushed_apart(harness, 6)
    harness.ack(*harness.claim(4, group="one").deliveries)
    assert prune(harness, 2) == 2
    assert prune(harness, 2) == 0
    assert (lane(harness).start, lane(harness).head) == (2, 6)
    assert prune(harness, 6) == 2
    assert lane(harness).start == 4
    assert harness.claim(9, group="one").bodies == ["4", "5"]
    assert harness.claim(9, group="new").bodies == ["4", "5"]


def test_prune_keeps_messages_that_a_group_holds(harness: StoreHarness) -> None:
    pushed_apart(harness, 3)
    first, _, third = harness.claim(3, group="one").deliveries
    harness.ack(first, third)
    assert prune(harness, 3) == 1
    assert lane(harness).start == 1


def test_prune_without_a_group_removes_nothing(harness: StoreHarness) -> None:
    pushed_apart(harness, 2)
    assert prune(harness, 2) == 0
    assert lane(harness).start == 0


def test_segment_goes_as_a_whole(harness: StoreHarness) -> None:
    harness.number(4)
    harness.ack(*harness.claim(4, group="one").deliveries)
    assert prune(harness, 3) == 0
    assert prune(harness, 4) == 4


def test_pruned_messages_are_still_duplicates(harness: StoreHarness) -> None:
    harness.push("x", txid="t")
    harness.ack(harness.take(group="one"))
    assert prune(harness, 1) == 1
    (again,) = harness.push("x", txid="t")
    assert again.status == "duplicate"


def test_redrive_brings_back_what_was_pruned(harness: StoreHarness) -> None:
    pushed_apart(harness, 1)
    harness.reject(harness.take(group="one"))
    assert prune(harness, 1) == 1
    (letter,) = harness.dead()
    harness.redrive(letter)
    assert settled(harness) == 0
    assert harness.claim(1, group="one").bodies == ["0"]


def test_bad_input_changes_nothing(harness: StoreHarness) -> None:
    pushed_apart(harness, 2)
    harness.push("x", queue="other")
    (foreign,) = harness.store.ask(q.ListLanes(queue="other"))
    here = lane(harness).lane
    with pytest.raises(UnknownQueue):
        harness.do(c.PruneQueue(queue="nowhere", lanes={here: 1}))
    for lanes in ({foreign.lane: 1}, {9999: 1}, {here: 3}, {here: -1}, {"x": 1}, [1]):
        with pytest.raises(BadInput):
            harness.do(c.PruneQueue(queue="q", lanes=lanes))  # type: ignore[arg-type]
    assert lane(harness).start == 0
