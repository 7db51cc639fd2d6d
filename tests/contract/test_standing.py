"""Where groups stand, in each partition and over a queue, and what that says about the queue."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import UnknownQueue
from ackwise.core.messages import QUEUE_MODE, NewMessage
from tests.contract.support import Desk


def places(desk: Desk, **filters: object) -> list[q.Place]:
    return desk.store.list_places(q.ListPlaces(**filters))  # type: ignore[arg-type]


def place(desk: Desk, partition: str = "Default", **filters: object) -> q.Place:
    (found,) = [row for row in places(desk, queue="q", **filters) if row.partition == partition]
    return found


def partitions(desk: Desk, queue: str = "q") -> dict[str, q.PartitionRow]:
    return {row.partition: row for row in desk.store.list_partitions(q.ListPartitions(queue=queue))}


def summary(desk: Desk, queue: str = "q") -> q.Stats:
    (found,) = [row.stats for row in desk.store.list_stats(q.ListStats()) if row.info.name == queue]
    return found


# places


def test_a_group_that_has_done_nothing_stands_at_the_start(desk: Desk) -> None:
    (receipt, *_) = desk.number(3)
    desk.do(c.ConfigureGroup(queue="q", group="g"))
    row = place(desk, group="g", last_done=True)
    assert (row.queue, row.group, row.partition, row.partition_id) == ("q", "g", "Default", receipt.partition_id)
    assert (row.unread, row.held, row.lag, row.acked) == (3, 0, 3, 0)
    assert (row.lease, row.leases, row.settled_at, row.last_done_id, row.last_done_created_at) == (
        None,
        0,
        None,
        None,
        None,
    )
    assert row.oldest_unfinished_at == desk.clock.now()


def test_a_lease_is_shown_with_what_was_granted_and_settled(desk: Desk) -> None:
    desk.configure(exclusivity="partition")
    receipts = desk.number(12)
    made_at = desk.clock.now()
    hand = desk.claim(10, seconds=300)
    desk.advance(7)
    desk.ack(*hand.deliveries[:2])
    row = place(desk, last_done=True)
    assert row.lease == q.PlaceLease(
        lease_id=hand.lease_id,
        owner=f"lease-{hand.claimed.lease_no}",
        made_at=made_at,
        deadline=made_at + 300_000_000,
        granted=10,
        settled=2,
    )
    assert (row.leases, row.held, row.unread, row.lag, row.acked) == (1, 8, 2, 10, 2)
    assert row.settled_at == desk.clock.now()
    assert (row.last_done_id, row.last_done_created_at) == (receipts[1].message_id, made_at)
    desk.ack(*hand.deliveries[2:])
    row = place(desk, last_done=True)
    assert (row.lease, row.leases, row.acked, row.lag) == (None, 0, 10, 2)
    assert row.last_done_id == receipts[9].message_id


def test_what_is_acked_out_of_order_does_not_move_the_place(desk: Desk) -> None:
    receipts = desk.number(3)
    hand = desk.claim()
    desk.ack(hand.deliveries[2])
    assert place(desk, last_done=True).last_done_id is None
    desk.ack(hand.deliveries[0])
    assert place(desk, last_done=True).last_done_id == receipts[0].message_id
    desk.reject(hand.deliveries[1])
    row = place(desk, last_done=True)
    assert (row.last_done_id, row.acked, row.dead, row.lag) == (receipts[2].message_id, 2, 1, 0)


def test_the_last_message_is_read_only_when_asked_for(desk: Desk) -> None:
    desk.number(1)
    desk.ack(desk.take())
    assert place(desk).last_done_id is None
    assert place(desk, last_done=True).last_done_id is not None


def test_the_last_message_is_known_after_it_was_pruned(desk: Desk) -> None:
    desk.configure(completed_retention_seconds=60, dedupe_seconds=3600)
    receipts = desk.number(2)
    desk.ack(*desk.claim().deliveries)
    desk.advance(100)
    desk.sweep("retain")
    assert desk.states() == []
    assert place(desk, last_done=True).last_done_id == receipts[1].message_id
    desk.advance(10_000)
    desk.sweep("forget")
    assert place(desk, last_done=True).last_done_id is None


def test_each_partition_and_each_group_has_its_place(desk: Desk) -> None:
    for partition, count in (("p1", 2), ("p2", 3)):
        desk.number(count, partition=partition)
    desk.number(1, queue="other")
    desk.claim(1, group="g", partitions=("p1",))
    desk.ack(*desk.claim(10, group="h").deliveries)
    desk.claim(1, queue="other", group="g")
    rows = {(row.queue, row.group, row.partition): row for row in places(desk)}
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
    assert {(row.queue, row.partition) for row in places(desk, group="g")} == {
        ("other", "Default"),
        ("q", "p1"),
        ("q", "p2"),
    }
    assert {row.group for row in places(desk, queue="q", group="h")} == {"h"}
    assert places(desk, group="nobody") == []
    with pytest.raises(UnknownQueue):
        places(desk, queue="nowhere")


def test_the_lanes_of_a_partition_count_as_one_place(desk: Desk) -> None:
    desk.number(2, priority=0)
    desk.advance(10)
    desk.send([NewMessage(b"x", priority=5, transaction_id="urgent")])
    desk.claim(3)
    row = place(desk)
    assert (row.held, row.unread, row.leases) == (3, 0, 1)
    assert row.lease is not None
    assert (row.lease.granted, row.lease.settled) == (3, 0)
    assert row.oldest_unfinished_at == desk.clock.now() - 10_000_000


def test_of_several_leases_the_newest_is_shown(desk: Desk) -> None:
    desk.number(4)
    desk.claim(2)
    newest = desk.claim(1)
    row = place(desk)
    assert row.leases == 2
    assert row.lease is not None
    assert (row.lease.lease_id, row.lease.granted) == (newest.lease_id, 1)


def test_what_a_seek_took_from_a_lease_was_not_settled_by_it(desk: Desk) -> None:
    for partition in ("p1", "p2"):
        desk.number(2, partition=partition)
    hand = desk.claim(4)
    desk.seek("start", partition="p1")
    assert place(desk, "p1").lease is None
    held = place(desk, "p2").lease
    assert held is not None
    assert (held.lease_id, held.granted, held.settled) == (hand.lease_id, 2, 0)


def test_only_places_with_something_old_unfinished(desk: Desk) -> None:
    desk.number(1, partition="old")
    desk.advance(100)
    desk.number(1, partition="young")
    desk.do(c.ConfigureGroup(queue="q", group="g"))
    bound = desk.clock.now() - 100_000_000
    assert [row.partition for row in places(desk, unfinished_since=bound)] == ["old"]
    assert places(desk, unfinished_since=bound - 1) == []
    desk.ack(*desk.claim(group="g").deliveries)
    assert places(desk, unfinished_since=desk.clock.now()) == []


def test_auto_acked_messages_count_as_acked(desk: Desk) -> None:
    receipts = desk.number(2)
    desk.claim(auto_ack=True)
    row = place(desk, last_done=True)
    assert (row.acked, row.lag, row.lease, row.settled_at) == (2, 0, None, desk.clock.now())
    assert row.last_done_id == receipts[1].message_id


# groups


def test_a_group_says_where_its_subscription_begins(desk: Desk) -> None:
    desk.number(1)
    made_at = desk.clock.now()
    desk.do(c.ConfigureGroup(queue="q", group="everything"))
    desk.do(c.ConfigureGroup(queue="q", group="newest", start="new"))
    desk.do(c.ConfigureGroup(queue="q", group="since", start=made_at - 5))
    found = {name: desk.group(name) for name in ("everything", "newest", "since")}
    assert {name: (g.mode, g.from_at, g.created_at) for name, g in found.items()} == {
        "everything": ("all", None, made_at),
        "newest": ("new", None, made_at),
        "since": ("from", made_at - 5, made_at),
    }
    desk.do(c.ConfigureGroup(queue="q", group="newest", start=made_at - 9, restart=True))
    moved = desk.group("newest")
    assert (moved.mode, moved.from_at, moved.lag) == ("from", made_at - 9, 0)


def test_a_group_counts_its_partitions_and_those_it_is_behind_in(desk: Desk) -> None:
    for partition in ("p1", "p2", "p3"):
        desk.number(2, partition=partition)
    hand = desk.claim(4, partitions=("p1", "p2"))
    group = desk.group()
    assert (group.partitions, group.partitions_behind, group.leased, group.settled_at) == (3, 3, 4, None)
    desk.advance(1)
    desk.ack(*[d for d in hand.deliveries if d.partition == "p1"])
    desk.retry(*[d for d in hand.deliveries if d.partition == "p2"], delay=60)
    group = desk.group()
    assert (group.partitions_behind, group.leased, group.held, group.settled_at) == (2, 0, 2, desk.clock.now())


# partitions and queues


def test_without_a_group_everything_is_pending(desk: Desk) -> None:
    first_at = desk.clock.now()
    receipts = desk.number(3, partition="p")
    desk.advance(60)
    desk.push("later", partition="p", txid="x")
    desk.push("scheduled", partition="p", delay=60)
    (row,) = partitions(desk).values()
    assert row == q.PartitionRow(
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
        newest_at=desk.clock.now(),
    )
    stats = summary(desk)
    assert (stats.messages, stats.scheduled, stats.pending, stats.processing, stats.completed) == (4, 1, 5, 0, 0)
    assert stats.furthest_behind is None


def test_a_partition_is_counted_for_the_group_furthest_behind(desk: Desk) -> None:
    for partition, count in (("p1", 5), ("p2", 2)):
        desk.number(count, partition=partition)
    desk.ack(*desk.claim(10, group="ahead").deliveries)
    hand = desk.claim(4, group="behind", partitions=("p1",))
    desk.ack(hand.deliveries[0])
    desk.reject(hand.deliveries[1])
    desk.retry(hand.deliveries[2], delay=60)
    rows = partitions(desk)
    assert {
        name: (row.messages, row.pending, row.processing, row.completed, row.dead) for name, row in rows.items()
    } == {"p1": (5, 2, 1, 1, 1), "p2": (2, 2, 0, 0, 0)}
    stats = summary(desk)
    assert stats.furthest_behind is not None
    assert stats.furthest_behind.group == "behind"
    assert (stats.pending, stats.processing, stats.completed, stats.dead) == (4, 1, 1, 1)


def test_dead_letters_of_every_group_are_counted(desk: Desk) -> None:
    desk.number(1)
    for group in ("g", "h"):
        desk.reject(desk.take(group=group))
    (row,) = partitions(desk).values()
    assert (row.dead, row.pending, row.completed) == (2, 0, 0)


def test_an_empty_partition_has_no_ages(desk: Desk) -> None:
    desk.do(c.ConfigureQueue(queue="q", partition="Default"))
    (row,) = partitions(desk).values()
    assert (row.partition, row.messages, row.oldest_at, row.newest_at) == ("Default", 0, None, None)
    with pytest.raises(UnknownQueue):
        partitions(desk, "nowhere")


def test_the_partitions_of_every_queue(desk: Desk) -> None:
    desk.number(1, queue="a")
    for partition in ("y", "x"):
        desk.number(2, queue="b", partition=partition)
    rows = desk.store.list_partitions(q.ListPartitions())
    assert [(row.queue, row.partition, row.messages) for row in rows] == [
        ("a", "Default", 1),
        ("b", "x", 2),
        ("b", "y", 2),
    ]


def test_queues_are_summed_up_by_namespace_and_task(desk: Desk) -> None:
    for name, namespace, task in (("a", "shop", "mail"), ("b", "shop", "pay"), ("c", "other", "mail")):
        desk.do(c.ConfigureQueue(queue=name, namespace=namespace, task=task))
        desk.number(2, queue=name)

    def named(**filters: Any) -> list[str]:
        return [row.info.name for row in desk.store.list_stats(q.ListStats(**filters))]

    assert named() == ["a", "b", "c"]
    assert named(namespace="shop") == ["a", "b"]
    assert named(namespace="shop", task="mail") == ["a"]
    desk.claim(1, queue="a")
    assert [(g.group, g.lag, g.leased) for g in summary(desk, "a").groups] == [(QUEUE_MODE, 2, 1)]
    assert (summary(desk, "a").pending, summary(desk, "a").processing) == (1, 1)
