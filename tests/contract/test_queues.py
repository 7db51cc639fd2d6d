"""Queues: made, changed, paused, deleted; and looking at them without touching."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, QueueExists, UnknownGroup, UnknownPartition, UnknownQueue
from tests.contract.support import Desk, counts


def test_configure_creates_then_merges(desk: Desk) -> None:
    made = desk.configure(retry_limit=5, lease_seconds=60)
    assert made.created
    changed = desk.configure(lease_seconds=90)
    assert not changed.created
    assert (changed.policy["retry_limit"], changed.policy["lease_seconds"]) == (5, 90)
    assert changed.policy["exclusivity"] == "none"


def test_or_replaces(desk: Desk) -> None:
    desk.configure(retry_limit=5, lease_seconds=60)
    answer = desk.do(c.ConfigureQueue(queue="q", policy={"lease_seconds": 90}, replace=True))
    assert (answer.policy["retry_limit"], answer.policy["lease_seconds"]) == (3, 90)


def test_none_is_a_value(desk: Desk) -> None:
    assert desk.configure(retry_limit=None, delivery_limit=None).policy["retry_limit"] is None
    assert desk.store.get_queue(q.GetQueue(queue="q")).policy["delivery_limit"] is None


def test_namespace_and_task_stay_when_not_named(desk: Desk) -> None:
    desk.do(c.ConfigureQueue(queue="q", namespace="shop", task="mail"))
    desk.configure(retry_limit=1)
    info = desk.store.get_queue(q.GetQueue(queue="q"))
    assert (info.namespace, info.task) == ("shop", "mail")
    assert [i.name for i in desk.store.list_queues(q.ListQueues(namespace="shop"))] == ["q"]
    assert desk.store.list_queues(q.ListQueues(task="bill")) == []


def test_must_be_new(desk: Desk) -> None:
    desk.configure(retry_limit=5)
    with pytest.raises(QueueExists):
        desk.do(c.ConfigureQueue(queue="q", policy={"retry_limit": 1}, must_be_new=True))
    assert desk.store.get_queue(q.GetQueue(queue="q")).policy["retry_limit"] == 5


@pytest.mark.parametrize(
    "policy",
    [
        {"retry_limit": -1},
        {"retry_limit": "three"},
        {"lease_seconds": float("nan")},
        {"lease_seconds": 24 * 3600 + 1},
        {"lease_seconds": 10**400},
        {"nonsense": 1},
        {"exclusivity": "sometimes"},
        {"backoff": {"kind": "schedule"}},
        {"backoff": {"kind": "fixed", "seconds": -1}},
        {"backoff": {"kind": "exponential", "factor": float("inf")}},
        {"max_payload_bytes": 0},
        {"delay_seconds": object()},
    ],
)
def test_a_bad_policy_is_refused_and_changes_nothing(desk: Desk, policy: dict[str, object]) -> None:
    desk.configure(retry_limit=5)
    before = desk.everything()
    for name in ("q", "new"):
        with pytest.raises(BadInput):
            desk.configure(name, **policy)
    assert desk.everything() == before


def test_a_new_policy_counts_for_what_is_already_there(desk: Desk) -> None:
    desk.push("a")
    desk.retry(desk.take())
    desk.configure(retry_limit=2)
    assert desk.retry(desk.take()) == ["dead"]


def test_a_paused_queue_takes_pushes_and_settlements(desk: Desk) -> None:
    desk.push("a")
    got = desk.take()
    assert desk.do(c.PauseQueue(queue="q")).paused
    desk.push("b")
    assert desk.claim().why == "paused"
    assert desk.ack(got) == ["acked"]
    assert not desk.do(c.PauseQueue(queue="q", paused=False)).paused
    assert desk.claim().bodies == ["b"]


def test_a_deleted_queue_frees_its_name_at_once_and_voids_its_leases(desk: Desk) -> None:
    desk.number(3)
    old = desk.claim(2)
    desk.reject(desk.take())
    desk.do(c.DeleteQueue(queue="q"))
    with pytest.raises(UnknownQueue):
        desk.claim()
    assert desk.dead() == []
    receipts = desk.number(3)
    assert [r.status for r in receipts] == ["queued"] * 3
    new = desk.claim(2)
    assert desk.ack(*old.deliveries, c.ByLease(old.lease_id)) == ["stale"] * 3
    assert desk.do(c.Extend(lease_id=old.lease_id, lease=1_000_000)).verdict == "stale"
    assert counts(desk.group()) == {"held": 2, "unread": 1}
    assert desk.ack(*new.deliveries) == ["acked", "acked"]


def test_its_rows_go_in_chunks(desk: Desk) -> None:
    for name in "abc":
        desk.push(*(str(i) for i in range(5)), partition=name)
        desk.push("low", partition=name, priority=2)
    desk.push("later", delay=60)
    desk.reject(*desk.claim(4).deliveries)
    desk.do(c.DeleteQueue(queue="q"))
    desk.push("new", txid="mine")
    rounds = 1
    while desk.do(c.Sweep(duties=("purge",), limit=2)).more:
        rounds += 1
        assert rounds < 50
    assert rounds > 3
    assert desk.claim().bodies == ["new"]
    desk.advance(100)
    assert desk.sweep() == {"expire": 1, "promote": 0, "max_wait": 0, "retain": 0, "forget": 0, "purge": 0}


def test_unknown_queues_are_refused_everywhere(desk: Desk) -> None:
    for command in (
        c.DeleteQueue(queue="x"),
        c.PauseQueue(queue="x"),
        c.ConfigureGroup(queue="x", group="g"),
        c.SeekGroup(queue="x", group="g", to="end"),
        c.DeleteGroup(queue="x", group="g"),
        c.Claim(queue="x"),
    ):
        with pytest.raises(UnknownQueue, match="'x'"):
            desk.do(command)
    for look in (
        lambda: desk.store.get_queue(q.GetQueue(queue="x")),
        lambda: desk.store.browse(q.Browse(queue="x")),
        lambda: desk.store.stats(q.QueueStats(queue="x")),
        lambda: desk.store.list_cursors(q.ListCursors(queue="x", group="g")),
        lambda: desk.store.list_groups(q.ListGroups(queue="x")),
        lambda: desk.store.list_dead(q.ListDead(queue="x")),
    ):
        with pytest.raises(UnknownQueue):
            look()
    assert desk.store.list_queues(q.ListQueues()) == []


def test_browse_shows_states_and_touches_nothing(desk: Desk) -> None:
    desk.number(6)
    hand = desk.claim(5, group="g")
    desk.ack(hand.deliveries[0])
    desk.reject(hand.deliveries[1])
    desk.retry(hand.deliveries[2], delay=60)
    before = desk.everything()
    assert desk.states("g") == ["acked", "dead", "waiting", "leased", "leased", "ready"]
    assert [b.state for b in desk.store.browse(q.Browse(queue="q"))] == [None] * 6
    assert desk.everything() == before
    desk.seek(4, group="g", partition="Default", by="seq")
    assert desk.states("g") == ["skipped"] * 4 + ["ready"] * 2


def test_browse_pages_by_place(desk: Desk) -> None:
    desk.number(3)
    desk.number(3, partition="p")
    desk.number(1, partition="r", priority=2)
    seen: list[str] = []
    after = None
    while page := desk.store.browse(q.Browse(queue="q", limit=2, after=after)):
        assert len(page) <= 2
        seen += [f"{b.partition}/{b.priority}/{b.message.seq}" for b in page]
        after = (page[-1].message.lane, page[-1].message.seq)
    assert seen == [f"{name}/0/{i}" for name in ("Default", "p") for i in range(3)] + ["r/2/0"]
    assert len(desk.store.browse(q.Browse(queue="q", partition="p"))) == 3


def test_browse_of_something_unknown(desk: Desk) -> None:
    desk.number(1)
    with pytest.raises(UnknownGroup):
        desk.store.browse(q.Browse(queue="q", group="nobody"))
    with pytest.raises(UnknownPartition):
        desk.store.browse(q.Browse(queue="q", partition="nowhere"))


def test_stats(desk: Desk) -> None:
    desk.number(3)
    desk.number(2, partition="p", priority=1)
    desk.push("later", delay=9)
    desk.reject(desk.take(group="g"))
    stats = desk.store.stats(q.QueueStats(queue="q"))
    assert (stats.partitions, stats.messages, stats.scheduled, stats.dead) == (2, 5, 1, 1)
    assert [(g.group, counts(g)) for g in stats.groups] == [("g", {"dead": 1, "unread": 4})]
