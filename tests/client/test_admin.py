"""Queues, groups, dead letters and numbers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

import ackwise
from ackwise import Backoff, Item, QueuePolicy, errors
from ackwise.clock import ManualClock
from ackwise.core import rows
from ackwise.core.answers import PurgedQueue, QueueInfo
from ackwise.engine import queue_purge
from ackwise.wire.timestamps import moment


def test_queue_is_made_and_changed(queue: ackwise.Connection) -> None:
    made = queue.create_queue("q", retry_limit=5, lease_seconds=timedelta(minutes=1), namespace="shop")
    assert (made.created, made.namespace, made.policy["retry_limit"], made.policy["lease_seconds"]) == (
        True,
        "shop",
        5,
        60.0,
    )
    with pytest.raises(errors.QueueExists):
        queue.create_queue("q")
    assert queue.create_queue("q", exist_ok=True).created is False
    assert queue.configure_queue("q", backoff=Backoff(kind="fixed", seconds=2)).policy["retry_limit"] == 5
    assert queue.configure_queue("q", replace=True, order="strict").policy["retry_limit"] == 3
    assert queue.configure_queue("q", QueuePolicy(retry_limit=9)).policy["order"] is None
    assert [info.name for info in queue.queues(namespace="shop")] == ["q"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"retries": 3}, "known: lease_seconds, retry_limit"),
        ({"retry_limit": -1}, "retry_limit"),
        ({"retry_limit": "3"}, "retry_limit"),
        ({"lease_seconds": float("nan")}, "finite"),
        ({"lease_seconds": timedelta(days=2)}, "between"),
        ({"backoff": {"kind": "linear"}}, "backoff"),
    ],
)
def test_bad_policy_names_the_field(queue: ackwise.Connection, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(errors.BadInput, match=told):
        queue.create_queue("q", **fields)
    assert queue.queues() == []


def test_queue_is_paused_and_deleted(queue: ackwise.Connection) -> None:
    queue.push("q", 1)
    assert queue.pause_queue("q").paused
    assert not queue.claim("q")
    assert not queue.resume_queue("q").paused
    assert queue.claim("q")
    queue.delete_queue("q")
    with pytest.raises(errors.UnknownQueue):
        queue.queue("q")


def test_browsing_touches_nothing(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.push_many("q", [Item(payload=n, partition=f"p{n % 2}", headers={"n": str(n)}) for n in range(5)])
    queue.claim("q", group="g", partitions=["p0"])[0].ack()
    page = queue.browse("q", group="g", limit=2)
    rest = queue.browse("q", group="g", after=page[-1])
    states = {m.json(): m.state for m in [*page, *rest]}
    assert states == {0: "acked", 2: "ready", 4: "ready", 1: "ready", 3: "ready"}
    assert page[0].created_at == moment(clock.now())
    assert [m.headers for m in queue.browse("q", partition="p1")] == [{"n": "1"}, {"n": "3"}]


def test_groups_start_where_they_are_told(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.push("q", "old")
    clock.advance(60)
    queue.create_group("q", "all")
    queue.create_group("q", "new", start="new")
    queue.create_group("q", "since", start=moment(clock.now()))
    queue.push("q", "young")
    assert {g.group: g.lag for g in queue.groups("q")} == {"all": 2, "new": 1, "since": 1}


def test_group_has_a_policy_of_its_own(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.create_queue("q", retry_limit=3)
    queue.create_group("q", "once", retry_limit=1)
    queue.create_group("q", "slow", backoff=Backoff(kind="fixed", seconds=9))
    queue.push("q", 1)
    assert queue.claim("q", group="once")[0].retry() == "dead"
    assert queue.claim("q", group="slow")[0].retry() == "retried"
    assert queue.claim("q", group="slow").until == moment(clock.now()) + timedelta(seconds=9)
    with pytest.raises(errors.BadInput):
        queue.create_group("q", "bad", retry_limit=-1)


def test_seek_moves_a_group(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.push_many("q", range(5), partition="p")
    batch = queue.claim("q", group="g", max=5)
    assert queue.seek("q", "g", to="start") == 1
    with pytest.raises(errors.LeaseLost):
        batch.ack()
    queue.seek("q", "g", to="end")
    assert queue.lag("q", "g") == 0
    queue.seek("q", "g", to=3, partition="p")
    assert [d.json() for d in queue.claim("q", group="g", max=5)] == [3, 4]
    queue.seek("q", "g", to=moment(clock.now()) - timedelta(days=1))
    (cursor,) = queue.cursors("q", "g")
    assert (cursor.next, cursor.head, cursor.partition) == (0, 5, "p")
    with pytest.raises(errors.BadInput, match="'start', 'end'"):
        queue.seek("q", "g", to="middle")  # type: ignore[arg-type]


def test_preview_of_a_seek_counts_messages(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.push_many("q", range(5), partition="p")
    queue.claim("q", group="g", max=3)[0].ack()
    shown = queue.preview_seek("q", "g", to="start")
    assert shown == rows.SeekPreview("q", "g", 1, 1, 0, 2, 1, 4, 5)
    assert queue.preview_seek("q", "g", to=4, partition="p").skipped == 3
    assert queue.preview_seek("q", "g", to=moment(clock.now()) + timedelta(days=1)).lag_after == 0
    assert queue.lag("q", "g") == 4
    with pytest.raises(errors.BadInput, match="'start', 'end'"):
        queue.preview_seek("q", "g", to="middle")  # type: ignore[arg-type]


def test_queue_is_purged_up_to_its_preview(
    queue: ackwise.Connection, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_purge, "MOST_ROWS", 1)
    for partition in "abc":
        queue.push_many("q", range(2), partition=partition)
    queue.push("q", 1, delay=60)
    batch = queue.claim("q", group="g", max=1)
    shown = queue.preview_purge("q")
    assert (shown.messages, shown.scheduled, shown.skipped, shown.until) == (6, 1, 6, moment(clock.now()))
    assert shown.groups == [rows.GroupPurgePreview("g", 6, 1, 1)]
    clock.advance(1)
    queue.push("q", "new", partition="a")
    assert queue.purge_queue("q", until=shown.until) == PurgedQueue(6, 1, 6)
    with pytest.raises(errors.LeaseLost):
        batch.ack()
    assert [delivery.json() for delivery in queue.claim("q", group="g", max=5)] == ["new"]
    assert queue.purge_queue("q").messages == 1
    with pytest.raises(errors.UnknownQueue):
        queue.purge_queue("nowhere")


def test_group_is_deleted(queue: ackwise.Connection) -> None:
    queue.push("q", 1)
    queue.create_group("q", "g")
    queue.delete_group("q", "g")
    with pytest.raises(errors.UnknownGroup):
        queue.lag("q", "g")


def bury(queue: ackwise.Connection, *reasons: str) -> None:
    queue.push_many("q", reasons)
    for delivery in queue.claim("q", group="g", max=len(reasons)):
        delivery.reject(delivery.json())


def test_dead_letters_come_in_pages(queue: ackwise.Connection, clock: ManualClock) -> None:
    bury(queue, "a", "b", "c")
    page = queue.dead_letters("q", group="g", limit=2)
    assert (len(page), page.total, len(page[:1])) == (2, 3, 1)
    assert page[0].dead_at == moment(clock.now())
    assert len(queue.dead_letters(reason="rejected", offset=2)) == 1
    assert not queue.dead_letters(after=moment(clock.now()) + timedelta(seconds=1))


def test_redrive_gives_it_to_the_same_group_again(queue: ackwise.Connection) -> None:
    bury(queue, "a", "b", "c")
    letters = queue.dead_letters("q")
    assert queue.redrive(letters[0]).count == 1
    assert queue.redrive(letters).results[letters[0].id] == "not_found"
    assert sorted(d.json() for d in queue.claim("q", group="g", max=9)) == ["a", "b", "c"]


def test_replay_pushes_a_copy(queue: ackwise.Connection) -> None:
    bury(queue, "a", "b")
    first, second = queue.dead_letters("q")
    assert queue.replay(first.id, queue="elsewhere").count == 1
    assert queue.replay([second]).count == 1
    assert queue.stats("elsewhere").messages == 1
    assert queue.dead_letters("q").total == 0


def test_purge_needs_to_know_what(queue: ackwise.Connection) -> None:
    bury(queue, "a", "b", "c")
    with pytest.raises(errors.BadInput, match="purge_dead needs"):
        queue.purge_dead()
    assert queue.purge_dead(queue.dead_letters("q")[:1]) == 1
    assert queue.purge_dead(queue="q") == 2


def test_dead_letters_are_counted_by_kind(queue: ackwise.Connection, clock: ManualClock) -> None:
    bury(queue, "order 1 not found", "order 2 not found", "no stock")
    first, second = queue.dead_kinds()
    assert (first.queue, first.kind, first.count) == ("q", "order <n> not found", 2)
    assert (first.reasons, first.last_at) == ({"rejected": 2}, moment(clock.now()))
    assert queue.dead_kinds("q", group="g", reason="rejected", limit=1) == [first]
    assert queue.dead_kinds(after=moment(clock.now()) + timedelta(seconds=1)) == []
    letters = queue.dead_letters("q", kind=second.kind)
    assert [(letter.error, letter.kind) for letter in letters] == [("no stock", "no stock")]
    with pytest.raises(errors.BadInput):
        queue.dead_kinds(limit=1001)


def test_series_of_the_ledger_has_equal_buckets(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.push_many("q", range(3))
    now = moment(clock.now())
    series = queue.ledger_series("q", after=now - timedelta(minutes=4), before=now + timedelta(minutes=1), buckets=5)
    assert (series.step, sum(series.counts["pushed"]), len(series.counts["pushed"])) == (120_000_000, 3, 3)
    assert series.first_at <= now - timedelta(minutes=4)
    with pytest.raises(errors.BadInput):
        queue.ledger_series(after=now, before=now)


def test_stats_count_messages_and_groups(queue: ackwise.Connection, clock: ManualClock) -> None:
    queue.push_many("q", range(3))
    queue.push("q", 1, delay=60)
    batch = queue.claim("q", group="g", max=2)
    clock.advance(2)
    batch[0].ack()
    stats = queue.stats("q")
    assert (stats.messages, stats.scheduled, stats.partitions) == (3, 1, 1)
    (group,) = stats.groups
    assert (group.acked, group.held, group.unread, group.lag) == (1, 1, 1, 2)
    (lease,) = queue.leases("q", "g")
    assert (lease.lease_id, lease.granted, lease.held) == (batch.lease_id, 2, 1)
    assert queue.oldest_leases() == queue.oldest_leases("q", limit=1000) == [lease]
    with pytest.raises(errors.BadInput, match="limit must be between 1 and 1000"):
        queue.oldest_leases(limit=1001)
    ledger = {row.outcome: row for row in queue.ledger("q")}
    assert (ledger["pushed"].count, ledger["acked"].count) == (4, 1)
    assert sum(ledger["acked"].latency.values()) == 1
    assert min(ledger["acked"].latency) >= 2.0
    assert queue.ledger("q", after=moment(clock.now()) + timedelta(hours=1)) == []


def test_rows_of_a_connection_are_core_rows_with_datetimes(queue: ackwise.Connection) -> None:
    queue.push("q", 1)
    batch = queue.claim("q", group="g")
    (lease,), (group,) = queue.leases("q"), queue.groups("q")
    assert isinstance(lease, rows.LeaseRow)
    assert isinstance(group, rows.GroupStats)
    assert isinstance(queue.queue("q"), QueueInfo)
    assert all(isinstance(at, datetime) for at in (lease.made_at, lease.deadline, group.created_at))
    assert (lease.held, group.held, group.leased, group.settled_at) == (1, 1, 1, None)
    assert batch.lease is not None


def test_row_from_the_wire_has_instants_as_integers() -> None:
    row = {"queue": "q", "group": "g", "minute": "2030-01-31T12:00:00Z", "outcome": "acked", "count": 1, "latency": {}}
    with pytest.raises(msgspec.ValidationError, match="minute"):
        msgspec.convert(row, rows.LedgerRow)
    read = msgspec.json.decode(msgspec.json.encode(row | {"minute": 5, "latency": {"7": 2}}), type=rows.LedgerRow)
    assert (read.minute, read.latency) == (5, {7: 2})
