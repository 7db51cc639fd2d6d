"""Lease mode: a batch is a claim, and what is not settled of it is there again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from ackwise.clock import ManualClock
from ackwise.core import commands as c
from ackwise.core.errors import BadInput, ClaimConflict, Conflict
from ackwise.core.messages import NewMessage
from ackwise.core.queries import ListQueues
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from ackwise.spark.source import lease_claims
from tests.spark.queue_harness import QueueHarness, until
from tests.spark.source.asking import Query, Row

Make = Callable[..., Query]


def numbers(rows: list[Row]) -> list[int]:
    """The messages, by transaction id."""
    return sorted(int(row["transaction_id"][1:]) for row in rows)


def attempts(rows: list[Row]) -> set[int]:
    return {row["attempt"] for row in rows}


def test_batch_is_a_claim(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(10)
    harness.number(5, partition="p", first=10, priority=2)
    one = query(url)
    assert {key: one.log[0][key] for key in ("queue", "group", "claimName", "claim")} == {
        "queue": "q",
        "group": "g",
        "claimName": "g",
        "claim": 0,
    }
    rows = one.batch()
    assert one.log[1] == {**one.log[0], "claim": 1}
    assert numbers(rows) == list(range(15))
    (row,) = [row for row in rows if row["transaction_id"] == "t12"]
    assert (row["queue"], row["partition"], row["priority"], row["seq"], row["attempt"]) == ("q", "p", 2, 2, 1)
    assert (row["payload"], row["headers"]) == ('{"n":12}', [])
    assert abs(row["created_at"].timestamp() - datetime.now(UTC).timestamp()) < 3600
    assert harness.counts() == {"held": 15}
    assert harness.settle(rows) == ["acked"] * 15
    assert not one.plan()
    assert harness.counts() == {"acked": 15}


def test_batch_with_max_bytes_stops_there(harness: QueueHarness, url: str, query: Make) -> None:
    """Without the option a batch may have more than the 16 MiB at which other claims stop."""
    payload = b'"%b"' % (b"x" * 7_000_000)
    for number in range(4):
        harness.send([NewMessage(payload, transaction_id=f"t{number}")])
    bounded = query(url, claimName="bounded", maxBytesPerTrigger=10_000_000)
    assert harness.settle(bounded.batch()) == ["acked"]
    assert len(harness.settle(query(url).batch())) == 3


def test_claim_is_the_querys_own_and_exclusive(local_harness: QueueHarness, query: Make) -> None:
    local_harness.number(3)
    one = query(local_harness.url, claimName="mine", leaseSeconds=77)
    one.batch()
    (held,) = local_harness.leases()
    assert (held.key, held.owner) == ("mine/1", f"spark:mine:{one.log[0]['nonce']}")
    other = local_harness.do(c.Claim(queue="q", group="g", most=9))
    assert (other.grants, other.empty.value) == ([], "locked")


def test_source_of_an_empty_queue_plans_no_batch(local_harness: QueueHarness, query: Make) -> None:
    local_harness.configure()
    one = query(local_harness.url)
    assert not one.plan()
    assert len(one.log) == 1
    assert local_harness.counts() == {}
    local_harness.number(1)
    assert numbers(one.batch()) == [0]


@pytest.mark.parametrize(("order", "expected"), [(None, [1, 2]), ("strict", [])])
def test_waiting_retry_blocks_only_a_strict_queue(
    local_harness: QueueHarness, query: Make, order: str | None, expected: list[int]
) -> None:
    """The strict order that follows from exclusive claims does not count: only the policy's own does."""
    local_harness.configure(exclusivity="partition", order=order)
    local_harness.number(1)
    one = query(local_harness.url)
    local_harness.settle(one.batch(), "retry", delay=3600)
    local_harness.number(2, first=1)
    assert numbers(one.batch()) == expected


@pytest.mark.parametrize("start", ["all", "new"])
def test_missing_queue_is_waited_for_and_not_created(
    harness: QueueHarness, url: str, query: Make, capfd: pytest.CaptureFixture[str], start: str
) -> None:
    """A query that began before its queue reads the queue from the beginning, also with `new`."""
    one = query(url, startingPosition=start)
    assert not one.plan()
    assert not one.plan()
    assert harness.ask(ListQueues()) == []
    assert capfd.readouterr().err.count("queue 'q' does not exist yet") == 1
    harness.number(2)
    assert numbers(one.batch()) == [0, 1]


def test_lease_source_batch_has_at_most_max_rows(local_harness: QueueHarness, query: Make) -> None:
    local_harness.number(10)
    local_harness.number(10, partition="p", first=10)
    one = query(local_harness.url, maxRowsPerTrigger=8)
    sizes = []
    while rows := one.batch():
        sizes.append(len(rows))
        local_harness.settle(rows)
    assert sizes == [8, 8, 4]
    assert local_harness.counts() == {"acked": 20}


@pytest.mark.parametrize(
    ("limit", "size"), [(ReadMaxRows(3), 3), (ReadAllAvailable(), 9), (ReadMinRows(1), 5), (ReadMaxRows(0), 1)]
)
def test_read_limit_of_spark_bounds_the_batch(local_harness: QueueHarness, query: Make, limit: Any, size: int) -> None:
    local_harness.number(9)
    one = query(local_harness.url, maxRowsPerTrigger=5)
    one.limit = limit
    assert len(one.batch()) == size


def test_restart_reads_the_same_claim_without_what_was_settled(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(10)
    first = query(url, maxRowsPerTrigger=6)
    rows = first.batch()
    harness.settle(rows[:2])
    again = query(url, first.log)
    rest = again.rows()
    assert numbers(rest) == numbers(rows[2:])
    assert attempts(rest) == {2}
    assert harness.settle(rows[2:3]) == ["stale"]  # what the first process still does counts for nothing
    assert harness.settle(rest) == ["acked"] * 4
    assert numbers(again.batch()) == [6, 7, 8, 9]
    assert harness.counts() == {"acked": 6, "held": 4}


def test_claim_that_spark_had_not_written_down_is_found_again(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(10)
    first = query(url, maxRowsPerTrigger=4)
    harness.settle(first.batch())
    assert first.plan()
    lost = first.log.pop()
    again = query(url, first.log, maxRowsPerTrigger=9)
    assert numbers(again.batch()) == [4, 5, 6, 7]
    assert again.log[-1] == lost


def test_restart_after_everything_was_settled_reads_nothing(local_harness: QueueHarness, query: Make) -> None:
    local_harness.number(3)
    first = query(local_harness.url)
    local_harness.settle(first.batch())
    again = query(local_harness.url, first.log)
    assert again.rows() == []
    assert not again.plan()
    local_harness.number(1, first=3)
    assert numbers(again.batch()) == [3]


def test_batch_whose_claim_the_store_has_forgotten_is_over(local_harness: QueueHarness, query: Make) -> None:
    """A claim under its number would take other records, and a pipeline would think that they were written."""
    local_harness.number(3)
    first = query(local_harness.url)
    local_harness.settle(first.batch())
    first.log.append({**first.log[-1], "claim": first.log[-1]["claim"] + 1})  # tombstones are kept for seven days
    local_harness.number(2, first=3)
    again = query(local_harness.url, first.log)
    assert again.rows() == []
    assert local_harness.counts() == {"acked": 3, "unread": 2}
    assert numbers(again.batch()) == [3, 4]


def test_retries_come_in_a_later_claim_with_their_attempt(harness: QueueHarness, url: str, query: Make) -> None:
    harness.configure(retry_limit=3)
    harness.number(4)
    one = query(url)
    rows = one.batch()
    assert harness.settle(rows[:1], "retry") == ["retried"]
    assert harness.settle(rows[1:2], "release") == ["released"]
    assert harness.settle(rows[2:3], "reject") == ["dead"]
    harness.settle(rows[3:])
    second = one.batch()
    assert (numbers(second), attempts(second)) == ([0, 1], {2})
    assert harness.settle(second, "retry") == ["retried"] * 2
    third = one.batch()
    assert attempts(third) == {3}
    assert sorted(harness.settle(third, "retry")) == ["dead", "retried"]
    fourth = one.batch()
    assert (numbers(fourth), attempts(fourth)) == ([1], {4})
    assert harness.settle(fourth, "retry") == ["dead"]
    assert harness.counts() == {"acked": 1, "dead": 3}
    assert [one["claim"] for one in one.log] == [0, 1, 2, 3, 4]


def test_delayed_retry_comes_when_it_is_due(
    timed_harness: QueueHarness, timed_url: str, query: Make, clock: ManualClock
) -> None:
    timed_harness.number(2)
    one = query(timed_url)
    rows = one.batch()
    timed_harness.settle(rows[:1], "retry", delay=60)
    timed_harness.settle(rows[1:])
    clock.advance(59)
    assert not one.plan()
    clock.advance(1)
    assert numbers(one.batch()) == [0]


@pytest.mark.parametrize(
    ("unsettled", "counts"),
    [("ack", {"acked": 4}), ("release", {"acked": 1, "held": 3}), ("retry", {"acked": 1, "dead": 3})],
)
def test_unsettled_rows_follow_the_option(
    harness: QueueHarness, url: str, query: Make, unsettled: str, counts: dict[str, int]
) -> None:
    """It was filtered out on the way; the option says what that means, and it is done when Spark has committed."""
    harness.configure(retry_limit=1)
    harness.number(4)
    one = query(url, unsettled=unsettled)
    harness.settle(one.batch()[:1])
    assert harness.counts() == {"acked": 1, "held": 3}
    assert one.plan() == (unsettled == "release")
    assert harness.counts() == counts


def test_unsettled_rows_are_finished_after_restart(local_harness: QueueHarness, query: Make) -> None:
    local_harness.number(4)
    first = query(local_harness.url)
    assert len(first.batch()) == 4
    again = query(local_harness.url, first.log)
    assert not again.plan()
    assert local_harness.counts() == {"acked": 4}


def test_second_query_is_refused_while_first_holds_lease(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(8)
    first = query(url, maxRowsPerTrigger=4)
    rows = first.batch()
    second = query(url)
    with pytest.raises(ClaimConflict, match=r"^ackwise: option claimName: 'g' is in use by another query .*claim g/1"):
        second.plan()
    assert harness.counts() == {"held": 4, "unread": 4}
    assert harness.settle(rows) == ["acked"] * 4  # the first was not disturbed
    assert numbers(first.batch()) == [4, 5, 6, 7]


def test_second_query_between_two_batches_ends_the_first(local_harness: QueueHarness, query: Make) -> None:
    """Neither query holds a lease then, so nothing is lost: one of the two ends with an error."""
    local_harness.number(8)
    first = query(local_harness.url, maxRowsPerTrigger=4)
    local_harness.settle(first.batch())
    second = query(local_harness.url, maxRowsPerTrigger=2)
    assert numbers(second.batch()) == [4, 5]
    with pytest.raises(ClaimConflict, match="option claimName: 'g' is in use"):
        first.plan()
    assert local_harness.counts() == {"acked": 4, "held": 2, "unread": 2}


def test_claim_name_each_lets_two_queries_share_a_group(harness: QueueHarness, url: str, query: Make) -> None:
    for partition in ("a", "b"):
        harness.number(4, partition=partition)
    first = query(url, claimName="one", maxRowsPerTrigger=4)
    second = query(url, claimName="two", maxRowsPerTrigger=4)
    mine, yours = first.batch(), second.batch()
    assert {row["partition"] for row in mine} ^ {row["partition"] for row in yours} == {"a", "b"}
    assert harness.settle(mine + yours) == ["acked"] * 8


def test_query_without_checkpoint_starts_after_last_claim(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(9)
    first = query(url, maxRowsPerTrigger=3)
    for _ in range(2):
        harness.settle(first.batch())
    fresh = query(url, maxRowsPerTrigger=3)
    assert fresh.log[0]["claim"] == 2
    assert fresh.log[0]["nonce"] != first.log[0]["nonce"]
    assert numbers(fresh.batch()) == [6, 7, 8]


def test_query_without_its_checkpoint_waits_for_the_lease(
    timed_harness: QueueHarness, timed_url: str, query: Make, clock: ManualClock
) -> None:
    timed_harness.number(3)
    query(timed_url, leaseSeconds=60).batch()
    fresh = query(timed_url)
    with pytest.raises(ClaimConflict, match="wait until its lease has ended"):
        fresh.plan()
    clock.advance(60)
    assert numbers(fresh.batch()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"queue": "other"}, "the checkpoint belongs to queue 'q', and option queue is 'other'"),
        ({"group": "other"}, "the checkpoint belongs to group 'g', and option group is 'other'"),
        ({"claimName": "other"}, "the checkpoint belongs to claimName 'g', and option claimName is 'other'"),
        ({"mode": "log"}, "the checkpoint was written in lease mode; option mode"),
    ],
)
def test_checkpoint_of_something_else(
    local_harness: QueueHarness, query: Make, change: dict[str, str], told: str
) -> None:
    local_harness.number(3)
    local_harness.number(3, queue="other")
    first = query(local_harness.url)
    rows = first.batch()
    changed = query(local_harness.url, first.log, **change)
    for call in (changed.plan, changed.rows):
        with pytest.raises(Conflict) as caught:
            call()
        assert str(caught.value).startswith(f"ackwise: {told}")
    assert local_harness.settle(rows) == ["acked"] * 3


def test_claim_that_ran_out_in_the_middle_of_its_batch(
    timed_harness: QueueHarness, timed_url: str, query: Make, clock: ManualClock
) -> None:
    timed_harness.number(4)
    first = query(timed_url, leaseSeconds=60)
    rows = first.batch()
    timed_harness.settle(rows[:1])
    clock.advance(60)
    assert timed_harness.settle(rows[1:]) == ["stale"] * 3
    again = query(timed_url, first.log)
    assert again.rows() == []
    rest = again.batch()
    assert (numbers(rest), attempts(rest)) == ([1, 2, 3], {2})
    assert timed_harness.settle(rest) == ["acked"] * 3


def test_running_query_continues_after_claim_was_lost(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(4)
    one = query(url)
    rows = one.batch()
    harness.settle(rows[:1])
    harness.expire()
    assert harness.settle(rows[1:]) == ["stale"] * 3
    assert numbers(one.batch()) == [0, 1, 2, 3]


def test_expiry_charges_no_failure(
    timed_harness: QueueHarness, timed_url: str, query: Make, clock: ManualClock
) -> None:
    """A batch that takes too long must not kill its messages, even where one is left alone in it."""
    timed_harness.configure(retry_limit=1)
    timed_harness.number(1)
    one = query(timed_url, leaseSeconds=10)
    for attempt in range(1, 6):
        rows = one.batch()
        assert attempts(rows) == {attempt}
        clock.advance(11)
    assert timed_harness.settle(one.batch()) == ["acked"]


def test_lease_is_short_until_spark_writes_first_offset(
    timed_harness: QueueHarness, timed_url: str, query: Make, clock: ManualClock
) -> None:
    """No query can take over from one that dies before it writes its first offset."""
    timed_harness.number(2)
    one = query(timed_url, leaseSeconds=300)
    assert one.plan()
    for _ in range(50):
        (held,) = timed_harness.leases()
        assert held.deadline - clock.now() == lease_claims.FIRST_LEASE
    one.rows()
    until(lambda: timed_harness.leases()[0].deadline - clock.now() == 300 * MICROS)


def test_available_now_reads_older_messages_and_their_retries(harness: QueueHarness, url: str, query: Make) -> None:
    harness.configure(retry_limit=5)
    harness.number(3)
    harness.number(3, partition="p", first=3)
    one = query(url, now=True, maxRowsPerTrigger=4)
    harness.number(3, first=6)
    harness.number(3, partition="new", first=9)
    seen = one.batch()
    harness.settle(seen, "retry")
    second = one.batch()
    harness.settle(second)
    third = one.batch()
    harness.settle(third)
    assert numbers(second + third) == [0, 1, 2, 3, 4, 5]
    assert not one.plan()
    assert harness.counts() == {"acked": 6, "unread": 6}
    assert numbers(query(url, one.log).batch()) == [6, 7, 8, 9, 10, 11]


def test_available_now_leaves_retries_that_are_not_due(local_harness: QueueHarness, query: Make) -> None:
    local_harness.number(2)
    one = query(local_harness.url, now=True)
    rows = one.batch()
    local_harness.settle(rows[:1], "retry", delay=3600)
    local_harness.settle(rows[1:])
    assert not one.plan()
    assert local_harness.counts() == {"acked": 1, "held": 1}


@pytest.mark.parametrize(("start", "expected"), [("all", [0, 1, 2, 3]), ("new", [2, 3]), ("time", [1, 2, 3])])
def test_new_group_begins_at_its_starting_position(
    timed_harness: QueueHarness, timed_url: str, query: Make, clock: ManualClock, start: str, expected: list[int]
) -> None:
    timed_harness.number(1)
    clock.advance(10)
    instant = datetime.fromtimestamp(clock.now() / MICROS, UTC).isoformat()
    timed_harness.number(1, first=1)
    clock.advance(10)
    one = query(timed_url, startingPosition=instant if start == "time" else start)
    clock.advance(10)
    timed_harness.number(1, first=2)
    timed_harness.number(1, partition="p", first=3)
    assert numbers(one.batch()) == expected


def test_group_that_exists_goes_on_where_it_is(local_harness: QueueHarness, query: Make) -> None:
    local_harness.number(4)
    claimed = local_harness.do(c.Claim(queue="q", group="g", most=2))
    local_harness.do(c.Settle(entries=[c.Settlement(selector=c.ByLease(claimed.lease_id), outcome=Outcome.ACK)]))
    assert numbers(query(local_harness.url, startingPosition="new").batch()) == [2, 3]


def test_lanes_are_dealt_out_to_tasks(local_harness: QueueHarness, query: Make) -> None:
    for number in range(6):
        local_harness.number(10, partition=f"p{number}", first=10 * number)
    one = query(local_harness.url, maxPartitions=3)
    assert one.plan()
    works = one.works()
    assert [len(work) for work in works] == [20, 20, 20]
    assert numbers([row for work in works for row in work]) == list(range(60))


@pytest.mark.parametrize(("policy", "sizes"), [({"order": "relaxed"}, [10, 10]), ({"order": "strict"}, [20])])
def test_lane_is_split_between_tasks_unless_order_is_strict(
    local_harness: QueueHarness, query: Make, policy: dict[str, str], sizes: list[int]
) -> None:
    local_harness.configure(**policy)
    local_harness.number(20)
    one = query(local_harness.url, maxPartitions=2)
    assert one.plan()
    works = one.works()
    assert [len(work) for work in works] == sizes
    for work in works:
        assert [row["seq"] for row in work] == sorted(row["seq"] for row in work)


def test_strict_lane_stops_at_a_retry_that_is_not_due(
    timed_harness: QueueHarness, timed_url: str, query: Make, clock: ManualClock
) -> None:
    timed_harness.configure(order="strict")
    timed_harness.number(4)
    one = query(timed_url, maxRowsPerTrigger=2)
    rows = one.batch()
    timed_harness.settle(rows[:1], "retry", delay=60)
    timed_harness.settle(rows[1:])
    assert not one.plan()
    clock.advance(60)
    assert numbers(one.batch()) == [0, 2]


def test_paused_queue_gives_nothing(local_harness: QueueHarness, query: Make) -> None:
    local_harness.number(2)
    local_harness.do(c.PauseQueue(queue="q"))
    one = query(local_harness.url)
    assert not one.plan()
    local_harness.do(c.PauseQueue(queue="q", paused=False))
    assert numbers(one.batch()) == [0, 1]


def test_lease_source_reports_its_lag(
    local_harness: QueueHarness, query: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_claims, "REPORT_EVERY", 0.0)
    local_harness.number(5)
    one = query(local_harness.url, maxRowsPerTrigger=3)
    assert one.reader.reportLatestOffset() == {"lag": 5}
    local_harness.settle(one.batch())
    assert one.reader.reportLatestOffset() == {"lag": 2}


def test_lease_source_returns_requested_columns_only(local_harness: QueueHarness, query: Make) -> None:
    local_harness.number(3)
    rows = query(local_harness.url, schema="seq long, delivery_id string").batch()
    assert [list(row) for row in rows] == [["seq", "delivery_id"]] * 3
    assert local_harness.settle(rows) == ["acked"] * 3


def test_payload_in_columns(local_harness: QueueHarness, query: Make) -> None:
    local_harness.send(
        [NewMessage(one) for one in (b'{"n": 1, "more": [1]}', b'{"n": "x"}', b"{", b'{"n": null}', b"\xff")]
    )
    one = query(
        local_harness.url, payloadSchema="n long not null, s string", schema="seq long, n long, _corrupt string"
    )
    found = {row["seq"]: (row["n"], row["_corrupt"]) for row in one.batch()}
    assert (found[0], found[3][0], found[4][0]) == ((1, None), None, None)
    assert "Expected `int`, got `str` - at `$.n`" in found[1][1]
    assert "truncated" in found[2][1]
    assert "got `null`" in found[3][1]
    assert "`n`" in found[4][1]  # bytes that are no text are shown as an object, which lacks the field


def test_names_as_long_as_they_may_be(local_harness: QueueHarness, query: Make) -> None:
    """What is cut off an owner's name must not make two queries one."""
    local_harness.number(4)
    name = "n" * 200
    first = query(local_harness.url, claimName=name, maxRowsPerTrigger=2)
    assert len(first.batch()) == 2
    with pytest.raises(ClaimConflict):
        query(local_harness.url, claimName=name).plan()
    with pytest.raises(BadInput, match="option claimName"):
        query(local_harness.url, claimName="n" * 250)
    with pytest.raises(BadInput, match="option claimName"):
        query(local_harness.url, group="n" * 250)
    assert len(query(local_harness.url, group="n" * 250, claimName="short").batch()) == 4


def test_names_that_begin_alike(local_harness: QueueHarness, query: Make) -> None:
    for partition in ("a", "b"):
        local_harness.number(2, partition=partition)
    one = query(local_harness.url, group="a/b", maxRowsPerTrigger=2)
    assert len(one.batch()) == 2
    other = query(local_harness.url, group="a/b", claimName="a", maxRowsPerTrigger=2)
    assert other.log[0]["claim"] == 0
    assert len(other.batch()) == 2
