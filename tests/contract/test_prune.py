"""Pruning what somebody keeps elsewhere: never what a group has not finished."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, UnknownQueue
from tests.contract.support import Desk


def lane(desk: Desk, **query: object) -> q.LaneRow:
    (row,) = desk.store.list_lanes(q.ListLanes(queue="q", **query))  # type: ignore[arg-type]
    return row


def settled(desk: Desk) -> int | None:
    return lane(desk, settled=True).settled


def prune(desk: Desk, below: int) -> int:
    counted: int = desk.do(c.PruneQueue(queue="q", lanes={lane(desk).lane: below})).count
    return counted


def pushed_apart(desk: Desk, count: int) -> None:
    """Each in a segment of its own."""
    for number in range(count):
        desk.push(str(number))


def test_settled_is_where_the_slowest_group_is(desk: Desk) -> None:
    desk.number(6)
    assert lane(desk).settled is None
    assert settled(desk) == 0  # no group: nobody has finished anything
    first, *rest = desk.claim(4, group="one").deliveries
    desk.ack(*rest)
    assert settled(desk) == 0
    desk.reject(first)  # dead is finished
    assert settled(desk) == 4
    desk.retry(*desk.claim(2, group="two").deliveries, delay=60)
    assert settled(desk) == 0  # waiting is not
    desk.advance(60)
    desk.ack(*desk.claim(2, group="two").deliveries)
    assert settled(desk) == 2


def test_only_what_is_named_and_finished_goes(desk: Desk) -> None:
    pushed_apart(desk, 6)
    desk.ack(*desk.claim(4, group="one").deliveries)
    assert prune(desk, 2) == 2
    assert prune(desk, 2) == 0
    assert (lane(desk).start, lane(desk).head) == (2, 6)
    assert prune(desk, 6) == 2
    assert lane(desk).start == 4
    assert desk.claim(9, group="one").bodies == ["4", "5"]
    assert desk.claim(9, group="new").bodies == ["4", "5"]


def test_what_a_group_holds_stays(desk: Desk) -> None:
    pushed_apart(desk, 3)
    first, _, third = desk.claim(3, group="one").deliveries
    desk.ack(first, third)
    assert prune(desk, 3) == 1
    assert lane(desk).start == 1


def test_nothing_goes_while_there_is_no_group(desk: Desk) -> None:
    pushed_apart(desk, 2)
    assert prune(desk, 2) == 0
    assert lane(desk).start == 0


def test_a_segment_goes_as_a_whole(desk: Desk) -> None:
    desk.number(4)
    desk.ack(*desk.claim(4, group="one").deliveries)
    assert prune(desk, 3) == 0
    assert prune(desk, 4) == 4


def test_pruned_messages_are_still_duplicates(desk: Desk) -> None:
    desk.push("x", txid="t")
    desk.ack(desk.take(group="one"))
    assert prune(desk, 1) == 1
    (again,) = desk.push("x", txid="t")
    assert again.status == "duplicate"


def test_a_redrive_brings_back_what_was_pruned(desk: Desk) -> None:
    pushed_apart(desk, 1)
    desk.reject(desk.take(group="one"))
    assert prune(desk, 1) == 1
    (letter,) = desk.dead()
    desk.redrive(letter)
    assert settled(desk) == 0
    assert desk.claim(1, group="one").bodies == ["0"]


def test_bad_input_changes_nothing(desk: Desk) -> None:
    pushed_apart(desk, 2)
    desk.push("x", queue="other")
    (foreign,) = desk.store.list_lanes(q.ListLanes(queue="other"))
    here = lane(desk).lane
    with pytest.raises(UnknownQueue):
        desk.do(c.PruneQueue(queue="nowhere", lanes={here: 1}))
    for lanes in ({foreign.lane: 1}, {9999: 1}, {here: 3}, {here: -1}, {"x": 1}, [1]):
        with pytest.raises(BadInput):
            desk.do(c.PruneQueue(queue="q", lanes=lanes))  # type: ignore[arg-type]
    assert lane(desk).start == 0
