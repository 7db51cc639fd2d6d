"""What a group read without claiming it counts as acked, and nothing else is touched."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, UnknownQueue
from tests.engine.store_harness import StoreHarness, counts, entry


def lanes(harness: StoreHarness, queue: str = "q") -> dict[str, int]:
    """Lanes by partition, of queues with one priority."""
    return {row.partition: row.lane for row in harness.store.ask(q.ListLanes(queue=queue))}


def advance(harness: StoreHarness, to: dict[Any, Any], group: str = "g", queue: str = "q") -> int:
    count: int = harness.do(c.AdvanceGroup(queue=queue, group=group, lanes=to)).count
    return count


def test_advance_acks_messages_below_its_seq(harness: StoreHarness) -> None:
    for partition in ("a", "b"):
        harness.number(4, partition=partition)
    lane = lanes(harness)
    harness.claim(1, group="g", auto_ack=True, partitions=("a",))
    harness.advance(5)
    assert advance(harness, {lane["a"]: 3, lane["b"]: 1}) == 3
    assert counts(harness.group("g")) == {"acked": 4, "unread": 4}
    assert harness.group("g").settled_at == harness.clock.now()
    assert harness.states("g", partition="a") == ["acked"] * 3 + ["ready"]
    assert sorted(harness.claim(group="g").bodies) == ["1", "2", "3", "3"]


def test_group_is_made_at_the_start(harness: StoreHarness) -> None:
    harness.number(3)
    assert advance(harness, {lanes(harness)["Default"]: 2}, "new") == 2
    assert counts(harness.group("new")) == {"acked": 2, "unread": 1}
    assert harness.group("new").mode == "all"
    assert advance(harness, {}, "none") == 0
    assert counts(harness.group("none")) == {"unread": 3}


def test_cursor_never_moves_back(harness: StoreHarness) -> None:
    harness.number(3)
    lane = lanes(harness)["Default"]
    assert [advance(harness, {lane: seq}) for seq in (2, 1, 2, 0, 3, 3)] == [2, 0, 0, 0, 1, 0]
    assert counts(harness.group("g")) == {"acked": 3}
    assert harness.claim(group="g").why == "empty"
    harness.push("more")
    assert harness.claim(group="g").bodies == ["more"]


def test_advance_over_held_messages_keeps_them_held(harness: StoreHarness) -> None:
    harness.configure(retry_limit=5)
    harness.number(6)
    hand = harness.claim(4, group="g")
    harness.retry(hand.deliveries[1], delay=30)
    harness.reject(hand.deliveries[2])
    assert advance(harness, {lanes(harness)["Default"]: 6}) == 2
    assert counts(harness.group("g")) == {"acked": 2, "dead": 1, "held": 3}
    assert harness.claim(group="g").why == "delayed"
    assert harness.ack(hand.deliveries[0], hand.deliveries[3]) == ["acked", "acked"]
    harness.advance(30)
    assert harness.claim(group="g").bodies == ["1"]
    assert harness.redrive(*harness.dead(group="g")).count == 1
    assert harness.claim(group="g").bodies == ["2"]
    assert counts(harness.group("g")) == {"acked": 4, "held": 2}


@pytest.mark.parametrize("exclusivity", ["partition", "queue"])
def test_advance_leaves_a_held_partition_to_its_owner(harness: StoreHarness, exclusivity: Any) -> None:
    for priority in (0, 1):
        harness.push("0", "1", "2", "3", priority=priority, partition="p")
    hand = harness.claim(2, group="g", exclusivity=exclusivity, owner="me")
    rows = harness.store.ask(q.ListLanes(queue="q"))
    assert advance(harness, {row.lane: 3 for row in rows}) == 4
    assert harness.claim(group="g").why == "locked"
    assert harness.ack(c.ByLease(hand.lease_id)) == ["acked"]
    assert sorted(harness.claim(group="g").bodies) == ["3", "3"]


def test_advance_begins_no_epoch(harness: StoreHarness) -> None:
    harness.number(3)
    harness.reject(harness.take(group="g"))
    advance(harness, {lanes(harness)["Default"]: 3})
    (row,) = harness.store.ask(q.ListCursors(queue="q", group="g"))
    assert (row.epoch, row.first, row.next, row.acked, row.dead) == (0, 0, 3, 2, 1)
    harness.seek("start", "g")
    assert counts(harness.group("g")) == {"unread": 3}


def test_strict_lane_waits_for_its_retry_as_before(harness: StoreHarness) -> None:
    harness.configure(exclusivity="partition")
    harness.number(3)
    harness.retry(harness.take(group="g"), delay=10)
    advance(harness, {lanes(harness)["Default"]: 2})
    assert harness.claim(group="g").why == "delayed"
    harness.advance(10)
    assert harness.claim(group="g").bodies == ["0", "2"]


def test_messages_that_a_delay_holds_back_may_be_passed(harness: StoreHarness) -> None:
    harness.configure(delay_seconds=60)
    harness.number(1)
    harness.advance(30)
    harness.push("later")
    advance(harness, {lanes(harness)["Default"]: 1})
    empty = harness.claim(group="g")
    assert (empty.why, empty.claimed.until) == ("delayed", harness.clock.now() + 60_000_000)


def test_pruned_lane_begins_where_its_log_does(harness: StoreHarness) -> None:
    harness.configure(retention_seconds=10)
    harness.number(2)
    harness.advance(10)
    harness.sweep()
    harness.push("a", "b")
    assert advance(harness, {lanes(harness)["Default"]: 1}) == 0
    assert advance(harness, {lanes(harness)["Default"]: 3}) == 1
    assert counts(harness.group("g")) == {"acked": 1, "unread": 1}


def test_ledger_counts_them(harness: StoreHarness) -> None:
    harness.number(3)
    advance(harness, {lanes(harness)["Default"]: 2})
    rows = harness.store.ask(q.ReadLedger(queue="q", group="g"))
    assert [(row.outcome, row.count, row.latency) for row in rows] == [("acked", 2, {})]


def test_advance_in_foreign_lane_or_past_end_changes_nothing(harness: StoreHarness) -> None:
    harness.number(2)
    harness.number(2, queue="other")
    mine, other = lanes(harness)["Default"], lanes(harness, "other")["Default"]
    before = harness.everything()
    for wrong in ({mine: 1, other: 1}, {mine: 1, 10**6: 1}, {mine: 3}, {0: 0}):
        with pytest.raises(BadInput, match=r"lane"):
            advance(harness, wrong)
    with pytest.raises(UnknownQueue):
        advance(harness, {mine: 1}, queue="nowhere")
    assert harness.everything() == before


def test_advance_to_an_invalid_lane_or_seq_changes_nothing(harness: StoreHarness) -> None:
    harness.number(2)
    lane = lanes(harness)["Default"]
    before = harness.everything()
    odd: list[Any] = [{lane: -1}, {lane: 2**63}, {lane: 0.5}, {lane: True}, {lane: None}, {"x": 1}, {2**63: 1}, [lane]]
    for wrong in odd:
        with pytest.raises(BadInput):
            advance(harness, wrong)
    assert harness.everything() == before


def test_lanes_of_a_deleted_queue_are_gone(harness: StoreHarness) -> None:
    harness.number(2)
    lane = lanes(harness)["Default"]
    harness.do(c.DeleteQueue(queue="q"))
    harness.push("new", partition="other")
    with pytest.raises(BadInput, match="no lane"):
        advance(harness, {lane: 1})


def test_advance_shares_a_turn_with_other_commands(harness: StoreHarness) -> None:
    harness.number(4)
    lane = lanes(harness)["Default"]
    hand = harness.claim(1, group="g")
    ack = c.Settle(entries=[entry(c.ByLease(hand.lease_id))])
    moved = c.AdvanceGroup(queue="q", group="g", lanes={lane: 3})
    wrong = c.AdvanceGroup(queue="q", group="h", lanes={lane: 9})
    claimed, done, refused, settled = harness.together(c.Claim(queue="q", group="g", most=9), moved, wrong, ack)
    assert (claimed.count, done.count, [one.verdict for one in settled]) == (1, 2, ["acked"])
    assert isinstance(refused, BadInput)
    assert [g.group for g in harness.store.ask(q.ListGroups(queue="q"))] == ["g"]


def test_advance_beside_claims_counts_no_message_twice(harness: StoreHarness) -> None:
    """The first command that reaches a message wins: the message is delivered or passed."""
    for partition in ("a", "b"):
        harness.number(20, partition=partition)
    names = lanes(harness)

    def work(number: int) -> int:
        done = 0
        for step in range(10):
            match number % 3:
                case 0:
                    hand = harness.claim(2, group="g")
                    done += len(harness.ack(*hand.deliveries))
                case 1:
                    done += advance(harness, {names["a"]: 2 * step, names["b"]: 20 - step})
                case _:
                    harness.push(f"{number}.{step}", partition="b")
        return done

    with ThreadPoolExecutor(6) as pool:
        done = sum(pool.map(work, range(6)))
    group = harness.group("g")
    assert (group.acked, group.acked + group.unread, group.held) == (done, 60, 0)
