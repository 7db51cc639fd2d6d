"""What a group read without claiming it counts as acked, and nothing else is touched."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, UnknownQueue
from tests.contract.support import Desk, counts, entry


def lanes(desk: Desk, queue: str = "q") -> dict[str, int]:
    """Lanes by partition, of queues with one priority."""
    return {row.partition: row.lane for row in desk.store.list_lanes(q.ListLanes(queue=queue))}


def advance(desk: Desk, to: dict[Any, Any], group: str = "g", queue: str = "q") -> int:
    count: int = desk.do(c.AdvanceGroup(queue=queue, group=group, lanes=to)).count
    return count


def test_everything_below_a_seq_is_acked(desk: Desk) -> None:
    for partition in ("a", "b"):
        desk.number(4, partition=partition)
    lane = lanes(desk)
    desk.claim(1, group="g", auto_ack=True, partitions=("a",))
    desk.advance(5)
    assert advance(desk, {lane["a"]: 3, lane["b"]: 1}) == 3
    assert counts(desk.group("g")) == {"acked": 4, "unread": 4}
    assert desk.group("g").settled_at == desk.clock.now()
    assert desk.states("g", partition="a") == ["acked"] * 3 + ["ready"]
    assert sorted(desk.claim(group="g").bodies) == ["1", "2", "3", "3"]


def test_a_group_is_made_at_the_start(desk: Desk) -> None:
    desk.number(3)
    assert advance(desk, {lanes(desk)["Default"]: 2}, "new") == 2
    assert counts(desk.group("new")) == {"acked": 2, "unread": 1}
    assert desk.group("new").mode == "all"
    assert advance(desk, {}, "none") == 0
    assert counts(desk.group("none")) == {"unread": 3}


def test_a_cursor_never_moves_back(desk: Desk) -> None:
    desk.number(3)
    lane = lanes(desk)["Default"]
    assert [advance(desk, {lane: seq}) for seq in (2, 1, 2, 0, 3, 3)] == [2, 0, 0, 0, 1, 0]
    assert counts(desk.group("g")) == {"acked": 3}
    assert desk.claim(group="g").why == "empty"
    desk.push("more")
    assert desk.claim(group="g").bodies == ["more"]


def test_what_is_held_stays_held(desk: Desk) -> None:
    desk.configure(retry_limit=5)
    desk.number(6)
    hand = desk.claim(4, group="g")
    desk.retry(hand.deliveries[1], delay=30)
    desk.reject(hand.deliveries[2])
    assert advance(desk, {lanes(desk)["Default"]: 6}) == 2
    assert counts(desk.group("g")) == {"acked": 2, "dead": 1, "held": 3}
    assert desk.claim(group="g").why == "delayed"
    assert desk.ack(hand.deliveries[0], hand.deliveries[3]) == ["acked", "acked"]
    desk.advance(30)
    assert desk.claim(group="g").bodies == ["1"]
    assert desk.redrive(*desk.dead(group="g")).count == 1
    assert desk.claim(group="g").bodies == ["2"]
    assert counts(desk.group("g")) == {"acked": 4, "held": 2}


@pytest.mark.parametrize("exclusivity", ["partition", "queue"])
def test_who_holds_a_partition_holds_on(desk: Desk, exclusivity: Any) -> None:
    for priority in (0, 1):
        desk.push("0", "1", "2", "3", priority=priority, partition="p")
    hand = desk.claim(2, group="g", exclusivity=exclusivity, owner="me")
    rows = desk.store.list_lanes(q.ListLanes(queue="q"))
    assert advance(desk, {row.lane: 3 for row in rows}) == 4
    assert desk.claim(group="g").why == "locked"
    assert desk.ack(c.ByLease(hand.lease_id)) == ["acked"]
    assert sorted(desk.claim(group="g").bodies) == ["3", "3"]


def test_it_begins_no_epoch(desk: Desk) -> None:
    desk.number(3)
    desk.reject(desk.take(group="g"))
    advance(desk, {lanes(desk)["Default"]: 3})
    (row,) = desk.store.list_cursors(q.ListCursors(queue="q", group="g"))
    assert (row.epoch, row.first, row.next, row.acked, row.dead) == (0, 0, 3, 2, 1)
    desk.seek("start", "g")
    assert counts(desk.group("g")) == {"unread": 3}


def test_a_strict_lane_waits_for_its_retry_as_before(desk: Desk) -> None:
    desk.configure(exclusivity="partition")
    desk.number(3)
    desk.retry(desk.take(group="g"), delay=10)
    advance(desk, {lanes(desk)["Default"]: 2})
    assert desk.claim(group="g").why == "delayed"
    desk.advance(10)
    assert desk.claim(group="g").bodies == ["0", "2"]


def test_messages_that_a_delay_holds_back_may_be_passed(desk: Desk) -> None:
    desk.configure(delay_seconds=60)
    desk.number(1)
    desk.advance(30)
    desk.push("later")
    advance(desk, {lanes(desk)["Default"]: 1})
    empty = desk.claim(group="g")
    assert (empty.why, empty.claimed.until) == ("delayed", desk.clock.now() + 60_000_000)


def test_a_pruned_lane_begins_where_its_log_does(desk: Desk) -> None:
    desk.configure(retention_seconds=10)
    desk.number(2)
    desk.advance(10)
    desk.sweep()
    desk.push("a", "b")
    assert advance(desk, {lanes(desk)["Default"]: 1}) == 0
    assert advance(desk, {lanes(desk)["Default"]: 3}) == 1
    assert counts(desk.group("g")) == {"acked": 1, "unread": 1}


def test_the_ledger_counts_them(desk: Desk) -> None:
    desk.number(3)
    advance(desk, {lanes(desk)["Default"]: 2})
    rows = desk.store.read_ledger(q.ReadLedger(queue="q", group="g"))
    assert [(row.outcome, row.count, row.latency) for row in rows] == [("acked", 2, {})]


def test_a_lane_of_another_queue_or_beyond_its_end_changes_nothing(desk: Desk) -> None:
    desk.number(2)
    desk.number(2, queue="other")
    mine, other = lanes(desk)["Default"], lanes(desk, "other")["Default"]
    before = desk.everything()
    for wrong in ({mine: 1, other: 1}, {mine: 1, 10**6: 1}, {mine: 3}, {0: 0}):
        with pytest.raises(BadInput, match=r"lane"):
            advance(desk, wrong)
    with pytest.raises(UnknownQueue):
        advance(desk, {mine: 1}, queue="nowhere")
    assert desk.everything() == before


def test_nor_does_what_is_no_lane_or_seq(desk: Desk) -> None:
    desk.number(2)
    lane = lanes(desk)["Default"]
    before = desk.everything()
    odd: list[Any] = [{lane: -1}, {lane: 2**63}, {lane: 0.5}, {lane: True}, {lane: None}, {"x": 1}, {2**63: 1}, [lane]]
    for wrong in odd:
        with pytest.raises(BadInput):
            advance(desk, wrong)
    assert desk.everything() == before


def test_lanes_of_a_deleted_queue_are_gone(desk: Desk) -> None:
    desk.number(2)
    lane = lanes(desk)["Default"]
    desk.do(c.DeleteQueue(queue="q"))
    desk.push("new", partition="other")
    with pytest.raises(BadInput, match="no lane"):
        advance(desk, {lane: 1})


def test_it_shares_a_turn_with_settlements_pushes_and_claims(desk: Desk) -> None:
    desk.number(4)
    lane = lanes(desk)["Default"]
    hand = desk.claim(1, group="g")
    ack = c.Settle(entries=[entry(c.ByLease(hand.lease_id))])
    moved = c.AdvanceGroup(queue="q", group="g", lanes={lane: 3})
    wrong = c.AdvanceGroup(queue="q", group="h", lanes={lane: 9})
    claimed, done, refused, settled = desk.together(c.Claim(queue="q", group="g", most=9), moved, wrong, ack)
    assert (claimed.count, done.count, [one.verdict for one in settled]) == (1, 2, ["acked"])
    assert isinstance(refused, BadInput)
    assert [g.group for g in desk.store.list_groups(q.ListGroups(queue="q"))] == ["g"]


def test_beside_claims_and_pushes_nothing_is_counted_twice(desk: Desk) -> None:
    """Whoever comes first to a message has it: it is handed out, or passed."""
    for partition in ("a", "b"):
        desk.number(20, partition=partition)
    names = lanes(desk)

    def work(number: int) -> int:
        done = 0
        for step in range(10):
            match number % 3:
                case 0:
                    hand = desk.claim(2, group="g")
                    done += len(desk.ack(*hand.deliveries))
                case 1:
                    done += advance(desk, {names["a"]: 2 * step, names["b"]: 20 - step})
                case _:
                    desk.push(f"{number}.{step}", partition="b")
        return done

    with ThreadPoolExecutor(6) as pool:
        done = sum(pool.map(work, range(6)))
    group = desk.group("g")
    assert (group.acked, group.acked + group.unread, group.held) == (done, 60, 0)
