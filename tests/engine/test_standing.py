"""Where groups stand, in each partition and over a queue, and what that says about the queue."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import UnknownQueue
from ackwise.core.messages import QUEUE_MODE, NewMessage
from ackwise.core.rows import PartitionRow, Place, PlaceLease, Stats
from tests.engine.store_harness import StoreHarness


def places(harness: StoreHarness, **filters: object) -> list[Place]:
    return harness.store.ask(q.ListPlaces(**filters))  # type: ignore[arg-type]


def place(harness: StoreHarness, partition: str = "Default", **filters: object) -> Place:
    (found,) = [row for row in places(harness, queue="q", **filters) if row.partition == partition]
    return found


def partitions(harness: StoreHarness, queue: str = "q") -> dict[str, PartitionRow]:
    return {row.partition: row for row in harness.store.ask(q.ListPartitions(queue=queue))}


def summary(harness: StoreHarness, queue: str = "q") -> Stats:
    (found,) = [row.stats for row in harness.store.ask(q.ListStats()) if row.info.name == queue]
    return found


# places


def test_group_that_has_done_nothing_stands_at_the_start(harness: StoreHarness) -> None:
    (receipt, *_) = harness.number(3)
    harness.do(c.ConfigureGroup(queue="q", group="g"))
    row = place(harness, group="g", last_done=True)
    assert (row.queue, row.group, row.partition, row.partition_id) == ("q", "g", "Default", receipt.partition_id)
    assert (row.unread, row.held, row.lag, row.acked) == (3, 0, 3, 0)
    assert (row.lease, row.leases, row.settled_at, row.last_done_id, row.last_done_created_at) == (
        None,
        0,
        None,
        None,
        None,
    )
    assert row.oldest_unfinished_at == harness.clock.now()


def test_lease_is_shown_with_what_was_granted_and_settled(harness: StoreHarness) -> None:
    harness.configure(exclusivity="partition")
    receipts = harness.number(12)
    made_at = harness.clock.now()
    hand = harness.claim(10, seconds=300)
    harness.advance(7)
    harness.ack(*hand.deliveries[:2])
    row = place(harness, last_done=True)
    assert row.lease == PlaceLease(
        lease_id=hand.lease_id,
        owner=f"lease-{hand.claimed.lease_no}",
        made_at=made_at,
        deadline=made_at + 300_000_000,
        granted=10,
        settled=2,
    )
    assert (row.leases, row.held, row.unread, row.lag, row.acked) == (1, 8, 2, 10, 2)
    assert row.settled_at == harness.clock.now()
    assert (row.last_done_id, row.last_done_created_at) == (receipts[1].message_id, made_at)
    harness.ack(*hand.deliveries[2:])
    row = place(harness, last_done=True)
    assert (row.lease, row.leases, row.acked, row.lag) == (None, 0, 10, 2)
    assert row.last_done_id == receipts[9].message_id


def test_ack_out_of_order_keeps_the_last_done_message(harness: StoreHarness) -> None:
    receipts = harness.number(3)
    hand = harness.claim()
    harness.ack(hand.deliveries[2])
    assert place(harness, last_done=True).last_done_id is None
    harness.ack(hand.deliveries[0])
    assert place(harness, last_done=True).last_done_id == receipts[0].message_id
    harness.reject(hand.deliveries[1])
    row = place(harness, last_done=True)
    assert (row.last_done_id, row.acked, row.dead, row.lag) == (receipts[2].message_id, 2, 1, 0)


def test_last_message_is_read_only_when_asked_for(harness: StoreHarness) -> None:
    harness.number(1)
    harness.ack(harness.take())
    assert place(harness).last_done_id is None
    assert place(harness, last_done=True).last_done_id is not None


def test_last_message_is_known_after_it_was_pruned(harness: StoreHarness) -> None:
    harness.configure(completed_retention_seconds=60, dedupe_seconds=3600)
    receipts = harness.number(2)
    harness.ack(*harness.claim().deliveries)
    harness.advance(100)
    harness.sweep("retain")
    assert harness.states() == []
    assert place(harness, last_done=True).last_done_id == receipts[1].message_id
    harness.advance(10_000)
    harness.sweep("forget")
    assert place(harness, last_done=True).last_done_id is None


def test_each_partition_and_each_group_has_its_place(harness: StoreHarness) -> None:
    for partition, count in (("p1", 2), ("p2", 3)):
        harness.number(count, partition=partition)
    harness.number(1, queue="other")
    harness.claim(1, group="g", partitions=("p1",))
    harness.ack(*harness.claim(10, group="h").deliveries)
    harness.claim(1, queue="other", group="g")
    rows = {(row.queue, row.group, row.partition): row for row in places(harness)}
    assert {key: row.lag for key, row in rows.items()} == {
        ("other", "g", "Default"): 1,
        ("q", "g", "p1"): 2,
        ("q", "g", "p2"): 3,
        ("q", "h", "p1"): 0,
        ("q", "h", "p2"): 0,
    }
    assert {key: row.leases for key, row in rows.items() if row.leases} == {
        ("other", "g", "Default"): 1,
        ("q", "g", "p1"): 1,
    }
    assert {(row.queue, row.partition) for row in places(harness, group="g")} == {
        ("other", "Default"),
        ("q", "p1"),
        ("q", "p2"),
    }
    assert {row.group for row in places(harness, queue="q", group="h")} == {"h"}
    assert places(harness, group="missing") == []
    with pytest.raises(UnknownQueue):
        places(harness, queue="nowhere")


def test_lanes_of_a_partition_count_as_one_place(harness: StoreHarness) -> None:
    harness.number(2, priority=0)
    harness.advance(10)
    harness.send([NewMessage(b"x", priority=5, transaction_id="urgent")])
    harness.claim(3)
    row = place(harness)
    assert (row.held, row.unread, row.leases) == (3, 0, 1)
    assert row.lease is not None
    assert (row.lease.granted, row.lease.settled) == (3, 0)
    assert row.oldest_unfinished_at == harness.clock.now() - 10_000_000


def test_place_with_several_leases_shows_the_newest(harness: StoreHarness) -> None:
    harness.number(4)
    harness.claim(2)
    newest = harness.claim(1)
    row = place(harness)
    assert row.leases == 2
    assert row.lease is not None
    assert (row.lease.lease_id, row.lease.granted) == (newest.lease_id, 1)


def test_messages_lost_to_a_seek_do_not_count_as_settled(harness: StoreHarness) -> None:
    for partition in ("p1", "p2"):
        harness.number(2, partition=partition)
    hand = harness.claim(4)
    harness.seek("start", partition="p1")
    assert place(harness, "p1").lease is None
    held = place(harness, "p2").lease
    assert held is not None
    assert (held.lease_id, held.granted, held.settled) == (hand.lease_id, 2, 0)


def test_places_unfinished_since_lists_old_ones_only(harness: StoreHarness) -> None:
    harness.number(1, partition="old")
    harness.advance(100)
    harness.number(1, partition="young")
    harness.do(c.ConfigureGroup(queue="q", group="g"))
    bound = harness.clock.now() - 100_000_000
    assert [row.partition for row in places(harness, unfinished_since=bound)] == ["old"]
    assert places(harness, unfinished_since=bound - 1) == []
    harness.ack(*harness.claim(group="g").deliveries)
    assert places(harness, unfinished_since=harness.clock.now()) == []


def test_auto_acked_messages_count_as_acked(harness: StoreHarness) -> None:
    receipts = harness.number(2)
    harness.claim(auto_ack=True)
    row = place(harness, last_done=True)
    assert (row.acked, row.lag, row.lease, row.settled_at) == (2, 0, None, harness.clock.now())
    assert row.last_done_id == receipts[1].message_id


# groups


def test_group_says_where_its_subscription_begins(harness: StoreHarness) -> None:
    harness.number(1)
    made_at = harness.clock.now()
    harness.do(c.ConfigureGroup(queue="q", group="everything"))
    harness.do(c.ConfigureGroup(queue="q", group="newest", start="new"))
    harness.do(c.ConfigureGroup(queue="q", group="since", start=made_at - 5))
    found = {name: harness.group(name) for name in ("everything", "newest", "since")}
    assert {name: (g.mode, g.from_at, g.created_at) for name, g in found.items()} == {
        "everything": ("all", None, made_at),
        "newest": ("new", None, made_at),
        "since": ("from", made_at - 5, made_at),
    }
    harness.do(c.ConfigureGroup(queue="q", group="newest", start=made_at - 9, restart=True))
    moved = harness.group("newest")
    assert (moved.mode, moved.from_at, moved.lag) == ("from", made_at - 9, 0)


def test_group_counts_its_partitions_and_those_it_is_behind_in(harness: StoreHarness) -> None:
    for partition in ("p1", "p2", "p3"):
        harness.number(2, partition=partition)
    hand = harness.claim(4, partitions=("p1", "p2"))
    group = harness.group()
    assert (group.partitions, group.partitions_behind, group.leased, group.settled_at) == (3, 3, 4, None)
    harness.advance(1)
    harness.ack(*[d for d in hand.deliveries if d.partition == "p1"])
    harness.retry(*[d for d in hand.deliveries if d.partition == "p2"], delay=60)
    group = harness.group()
    assert (group.partitions_behind, group.leased, group.held, group.settled_at) == (2, 0, 2, harness.clock.now())


# partitions and queues


def test_partition_without_a_group_counts_all_as_pending(harness: StoreHarness) -> None:
    first_at = harness.clock.now()
    receipts = harness.number(3, partition="p")
    harness.advance(60)
    harness.push("later", partition="p", txid="x")
    harness.push("scheduled", partition="p", delay=60)
    (row,) = partitions(harness).values()
    assert row == PartitionRow(
        queue="q",
        partition="p",
        partition_id=receipts[0].partition_id,
        messages=4,
        scheduled=1,
        pending=5,
        processing=0,
        completed=0,
        dead=0,
        oldest_at=first_at,
        newest_at=harness.clock.now(),
    )
    stats = summary(harness)
    assert (stats.messages, stats.scheduled, stats.pending, stats.processing, stats.completed) == (4, 1, 5, 0, 0)
    assert stats.furthest_behind is None


def test_partition_is_counted_for_the_group_furthest_behind(harness: StoreHarness) -> None:
    for partition, count in (("p1", 5), ("p2", 2)):
        harness.number(count, partition=partition)
    harness.ack(*harness.claim(10, group="ahead").deliveries)
    hand = harness.claim(4, group="behind", partitions=("p1",))
    harness.ack(hand.deliveries[0])
    harness.reject(hand.deliveries[1])
    harness.retry(hand.deliveries[2], delay=60)
    rows = partitions(harness)
    assert {
        name: (row.messages, row.pending, row.processing, row.completed, row.dead) for name, row in rows.items()
    } == {"p1": (5, 2, 1, 1, 1), "p2": (2, 2, 0, 0, 0)}
    stats = summary(harness)
    assert stats.furthest_behind is not None
    assert stats.furthest_behind.group == "behind"
    assert (stats.pending, stats.processing, stats.completed, stats.dead) == (4, 1, 1, 1)


def test_dead_letters_of_every_group_are_counted(harness: StoreHarness) -> None:
    harness.number(1)
    for group in ("g", "h"):
        harness.reject(harness.take(group=group))
    (row,) = partitions(harness).values()
    assert (row.dead, row.pending, row.completed) == (2, 0, 0)


def test_empty_partition_has_no_ages(harness: StoreHarness) -> None:
    harness.do(c.ConfigureQueue(queue="q", partition="Default"))
    (row,) = partitions(harness).values()
    assert (row.partition, row.messages, row.oldest_at, row.newest_at) == ("Default", 0, None, None)
    with pytest.raises(UnknownQueue):
        partitions(harness, "nowhere")


def test_partitions_of_every_queue(harness: StoreHarness) -> None:
    harness.number(1, queue="a")
    for partition in ("y", "x"):
        harness.number(2, queue="b", partition=partition)
    rows = harness.store.ask(q.ListPartitions())
    assert [(row.queue, row.partition, row.messages) for row in rows] == [
        ("a", "Default", 1),
        ("b", "x", 2),
        ("b", "y", 2),
    ]


def test_queues_are_summed_up_by_namespace_and_task(harness: StoreHarness) -> None:
    for name, namespace, task in (("a", "shop", "mail"), ("b", "shop", "pay"), ("c", "other", "mail")):
        harness.do(c.ConfigureQueue(queue=name, namespace=namespace, task=task))
        harness.number(2, queue=name)

    def named(**filters: Any) -> list[str]:
        return [row.info.name for row in harness.store.ask(q.ListStats(**filters))]

    assert named() == ["a", "b", "c"]
    assert named(namespace="shop") == ["a", "b"]
    assert named(namespace="shop", task="mail") == ["a"]
    harness.claim(1, queue="a")
    assert [(g.group, g.lag, g.leased) for g in summary(harness, "a").groups] == [(QUEUE_MODE, 2, 1)]
    assert (summary(harness, "a").pending, summary(harness, "a").processing) == (1, 1)
