"""Log mode: a batch is a range of every lane, and the same whenever it is read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ackwise.clock import ManualClock
from ackwise.core import commands as c
from ackwise.core.errors import Conflict, DataLost
from ackwise.core.queries import ListGroups
from ackwise.core.validation import MICROS
from tests.spark.queue_harness import QueueHarness
from tests.spark.source.asking import Query, Row

Make = Callable[..., Query]


def numbers(rows: list[Row]) -> list[int]:
    return sorted(int(row["transaction_id"][1:]) for row in rows)


def pruned(harness: QueueHarness, group: str, below: int) -> int:
    """Everything that was pushed before is gone, as far as whole segments go."""
    lane = harness.lanes()["Default"].lane
    harness.do(c.AdvanceGroup(queue="q", group=group, lanes={lane: below}))
    count: int = harness.do(c.PruneQueue(queue="q", lanes={lane: below})).count
    return count


def test_batch_is_a_range_of_every_lane(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(10)
    harness.number(5, partition="p", first=10, priority=2)
    one = query(url, mode="log")
    lanes = harness.lanes()
    assert one.log[0] == {"queue": "q", "group": "g", "lanes": {str(lane.lane): 0 for lane in lanes.values()}}
    rows = one.batch()
    assert one.log[1]["lanes"] == {str(lanes["Default"].lane): 10, str(lanes["p"].lane): 5}
    assert numbers(rows) == list(range(15))
    (row,) = [row for row in rows if row["transaction_id"] == "t12"]
    assert (row["queue"], row["partition"], row["priority"], row["seq"]) == ("q", "p", 2, 2)
    assert (row["payload"], row["delivery_id"], row["attempt"]) == ('{"n":12}', None, None)
    assert not one.plan()
    assert harness.leases(live_only=False) == []


def test_batch_is_the_same_again(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(10)
    first = query(url, mode="log", maxRowsPerTrigger=6)
    rows = first.batch()
    assert len(rows) == 6
    harness.number(10, first=10)
    assert first.rows() == rows
    again = query(url, first.log, mode="log", maxRowsPerTrigger=3)
    assert again.rows() == rows
    assert numbers(again.batch()) == [6, 7, 8]


def test_groups_cursor_follows_what_spark_has_committed(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(10)
    one = query(url, mode="log", maxRowsPerTrigger=4)
    assert harness.counts() == {"unread": 10}
    one.batch()
    assert harness.counts() == {"unread": 10}  # the batch may yet fail
    one.batch()
    assert harness.counts() == {"acked": 4, "unread": 6}
    one.batch()
    assert not one.plan()
    assert harness.counts() == {"acked": 10}
    assert harness.group().lag == 0


def test_log_source_without_a_group_writes_nothing(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(4)
    one = query(url, mode="log", group=None)
    assert numbers(one.batch()) == [0, 1, 2, 3]
    assert not one.plan()
    assert harness.ask(ListGroups(queue="q")) == []


def test_query_without_checkpoint_continues_at_its_group(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(9)
    first = query(url, mode="log", maxRowsPerTrigger=3)
    first.batch()
    first.batch()
    fresh = query(url, mode="log")
    assert numbers(fresh.batch()) == [3, 4, 5, 6, 7, 8]  # the second batch of the first was not committed


def test_group_that_claims_elsewhere_keeps_what_it_holds(local_harness: QueueHarness, query: Make) -> None:
    local_harness.number(6)
    local_harness.do(c.Claim(queue="q", group="g", most=2))
    one = query(local_harness.url, mode="log")
    assert numbers(one.batch()) == [2, 3, 4, 5]
    assert not one.plan()
    assert local_harness.counts() == {"acked": 4, "held": 2}


def test_lanes_that_appear_later(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(2)
    one = query(url, mode="log")
    one.batch()
    harness.number(2, partition="p", first=2)
    harness.number(2, priority=1, first=4)
    assert numbers(one.batch()) == [2, 3, 4, 5]
    assert not one.plan()
    assert harness.counts() == {"acked": 6}


def test_log_source_of_an_empty_queue_plans_no_batch(harness: QueueHarness, url: str, query: Make) -> None:
    harness.configure()
    one = query(url, mode="log")
    assert not one.plan()
    assert one.log[0]["lanes"] == {}
    harness.number(2)
    assert numbers(one.batch()) == [0, 1]


@pytest.mark.parametrize("options", [{}, {"startingPosition": "new"}, {"group": None}])
def test_missing_queue_is_waited_for(
    local_harness: QueueHarness, query: Make, capfd: pytest.CaptureFixture[str], options: dict[str, str]
) -> None:
    one = query(local_harness.url, mode="log", **options)
    assert not one.plan()
    assert capfd.readouterr().err.count("queue 'q' does not exist yet") == 1
    local_harness.number(2)
    assert numbers(one.batch()) == [0, 1]
    local_harness.number(1, first=2)
    assert numbers(one.batch()) == [2]


@pytest.mark.parametrize("group", ["g", None])
@pytest.mark.parametrize(("start", "expected"), [("all", [0, 1, 2, 3]), ("new", [2, 3]), ("time", [1, 2, 3])])
def test_log_source_begins_at_its_starting_position(
    timed_harness: QueueHarness,
    timed_url: str,
    query: Make,
    clock: ManualClock,
    group: str | None,
    start: str,
    expected: list[int],
) -> None:
    timed_harness.number(1)
    clock.advance(10)
    instant = datetime.fromtimestamp(clock.now() / MICROS, UTC).isoformat()
    timed_harness.number(1, first=1)
    clock.advance(10)
    one = query(timed_url, mode="log", group=group, startingPosition=instant if start == "time" else start)
    clock.advance(10)
    timed_harness.number(1, first=2)
    timed_harness.number(1, partition="p", first=3)
    assert numbers(one.batch()) == expected


@pytest.mark.parametrize("group", ["g", None])
def test_time_among_many(
    timed_harness: QueueHarness, timed_url: str, query: Make, clock: ManualClock, group: str | None
) -> None:
    for number in range(20):
        timed_harness.number(3, first=3 * number)
        clock.advance(1)
    at = datetime.fromtimestamp(clock.now() / MICROS - 7.5, UTC).isoformat()
    one = query(timed_url, mode="log", group=group, startingPosition=at)
    assert numbers(one.batch()) == list(range(39, 60))
    later = datetime.fromtimestamp(clock.now() / MICROS + 7.5, UTC).isoformat()
    assert query(timed_url, mode="log", group=group and "later", startingPosition=later).batch() == []


def test_log_source_batch_has_at_most_max_rows_of_all_lanes(harness: QueueHarness, url: str, query: Make) -> None:
    for number, count in enumerate((1, 5, 30)):
        harness.number(count, partition=f"p{number}", first=100 * number)
    one = query(url, mode="log", maxRowsPerTrigger=10)
    sizes, seen = [], []
    while rows := one.batch():
        sizes.append(len(rows))
        seen += numbers(rows)
    assert sizes == [10, 10, 10, 6]
    assert sorted(seen) == [0, *range(100, 105), *range(200, 230)]


def test_log_source_with_no_limit_reads_all(local_harness: QueueHarness, query: Make) -> None:
    local_harness.number(9)
    one = query(local_harness.url, mode="log", maxRowsPerTrigger=2)
    one.limit = ReadAllAvailable()
    assert len(one.batch()) == 9


def test_available_now_of_a_log_reads_older_messages_only(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(3)
    one = query(url, now=True, mode="log", maxRowsPerTrigger=2)
    harness.number(3, first=3)
    harness.number(3, partition="p", first=6)
    assert numbers(one.batch()) + numbers(one.batch()) == [0, 1, 2]
    assert not one.plan()
    assert numbers(query(url, one.log, mode="log").batch()) == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"queue": "other"}, "the checkpoint belongs to queue 'q', and option queue is 'other'"),
        ({"group": "other"}, "the checkpoint belongs to group 'g', and option group is 'other'"),
        ({"group": None}, "the checkpoint belongs to group 'g', and option group is None"),
        ({"mode": "lease"}, "the checkpoint was written in log mode; option mode"),
    ],
)
def test_checkpoint_of_something_else(
    local_harness: QueueHarness, query: Make, change: dict[str, Any], told: str
) -> None:
    local_harness.number(3)
    local_harness.number(3, queue="other")
    first = query(local_harness.url, mode="log")
    first.batch()
    changed = query(local_harness.url, first.log, **{"mode": "log", **change})
    for call in (changed.plan, changed.rows):
        with pytest.raises(Conflict) as caught:
            call()
        assert str(caught.value).startswith(f"ackwise: {told}")
    assert local_harness.counts() == {"unread": 3}


def test_messages_pruned_before_the_read_raise_data_lost(harness: QueueHarness, url: str, query: Make) -> None:
    for number in range(6):
        harness.number(1, first=number)
    one = query(url, mode="log", group=None, maxRowsPerTrigger=2)
    one.batch()
    assert pruned(harness, "cleaner", 4) == 4
    assert one.plan()
    with pytest.raises(DataLost, match=r"^ackwise: messages 2 to 3 of partition 'Default' in queue 'q' were pruned"):
        one.rows()
    relaxed = query(url, one.log, mode="log", group=None, failOnDataLoss="false", maxRowsPerTrigger=2)
    assert relaxed.rows() == []
    assert numbers(relaxed.batch()) == [4, 5]


def test_new_query_begins_where_the_queue_does(harness: QueueHarness, url: str, query: Make) -> None:
    for number in range(6):
        harness.number(1, first=number)
    assert pruned(harness, "cleaner", 4) == 4
    for group in (None, "late"):
        assert numbers(query(url, mode="log", group=group).batch()) == [4, 5]


def test_lane_that_appeared_and_was_pruned_meanwhile(harness: QueueHarness, url: str, query: Make) -> None:
    harness.configure()
    one = query(url, mode="log", group=None)
    for number in range(3):
        harness.number(1, first=number)
    assert pruned(harness, "cleaner", 2) == 2
    assert numbers(one.batch()) == [2]


def test_lanes_are_split_over_tasks(local_harness: QueueHarness, query: Make) -> None:
    local_harness.configure(order="strict")
    local_harness.number(20)
    one = query(local_harness.url, mode="log", maxPartitions=4)
    assert one.plan()
    assert [len(work) for work in one.works()] == [5, 5, 5, 5]


def test_log_source_reports_its_latest_offset(local_harness: QueueHarness, query: Make) -> None:
    local_harness.number(5)
    one = query(local_harness.url, mode="log", maxRowsPerTrigger=3)
    one.batch()
    lane = str(local_harness.lanes()["Default"].lane)
    assert one.reader.reportLatestOffset() == {"queue": "q", "group": "g", "lanes": {lane: 5}}


def test_offsets_keep_their_order(local_harness: QueueHarness, query: Make) -> None:
    """Spark compares offsets as they are spelled."""
    for number in range(12):
        local_harness.number(1, partition=f"p{number}", first=number)
    one = query(local_harness.url, mode="log", maxRowsPerTrigger=5)
    while one.plan():
        keys = list(one.log[-1]["lanes"])
        assert keys == sorted(keys, key=int)
        assert list(one.log[-1]) == list(one.log[0])
