"""Queues: made, changed, paused, deleted; and looking at them without touching."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, QueueExists, UnknownGroup, UnknownPartition, UnknownQueue
from tests.engine.store_harness import StoreHarness, counts


def test_configure_creates_then_merges(harness: StoreHarness) -> None:
    made = harness.configure(retry_limit=5, lease_seconds=60)
    assert made.created
    changed = harness.configure(lease_seconds=90)
    assert not changed.created
    assert (changed.policy["retry_limit"], changed.policy["lease_seconds"]) == (5, 90)
    assert changed.policy["exclusivity"] == "none"


def test_configure_with_replace_resets_other_options(harness: StoreHarness) -> None:
    harness.configure(retry_limit=5, lease_seconds=60)
    answer = harness.do(c.ConfigureQueue(queue="q", policy={"lease_seconds": 90}, replace=True))
    assert (answer.policy["retry_limit"], answer.policy["lease_seconds"]) == (3, 90)


def test_configure_with_none_removes_a_limit(harness: StoreHarness) -> None:
    assert harness.configure(retry_limit=None, delivery_limit=None).policy["retry_limit"] is None
    assert harness.store.ask(q.GetQueue(queue="q")).policy["delivery_limit"] is None


def test_namespace_and_task_stay_when_not_named(harness: StoreHarness) -> None:
    harness.do(c.ConfigureQueue(queue="q", namespace="shop", task="mail"))
    harness.configure(retry_limit=1)
    info = harness.store.ask(q.GetQueue(queue="q"))
    assert (info.namespace, info.task) == ("shop", "mail")
    assert [i.name for i in harness.store.ask(q.ListQueues(namespace="shop"))] == ["q"]
    assert harness.store.ask(q.ListQueues(task="bill")) == []


def test_must_be_new(harness: StoreHarness) -> None:
    harness.configure(retry_limit=5)
    with pytest.raises(QueueExists):
        harness.do(c.ConfigureQueue(queue="q", policy={"retry_limit": 1}, must_be_new=True))
    assert harness.store.ask(q.GetQueue(queue="q")).policy["retry_limit"] == 5


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
def test_bad_policy_is_refused_and_changes_nothing(harness: StoreHarness, policy: dict[str, object]) -> None:
    harness.configure(retry_limit=5)
    before = harness.everything()
    for name in ("q", "new"):
        with pytest.raises(BadInput):
            harness.configure(name, **policy)
    assert harness.everything() == before


def test_new_policy_counts_for_what_is_already_there(harness: StoreHarness) -> None:
    harness.push("a")
    harness.retry(harness.take())
    harness.configure(retry_limit=2)
    assert harness.retry(harness.take()) == ["dead"]


def test_paused_queue_takes_pushes_and_settlements(harness: StoreHarness) -> None:
    harness.push("a")
    got = harness.take()
    assert harness.do(c.PauseQueue(queue="q")).paused
    harness.push("b")
    assert harness.claim().why == "paused"
    assert harness.ack(got) == ["acked"]
    assert not harness.do(c.PauseQueue(queue="q", paused=False)).paused
    assert harness.claim().bodies == ["b"]


def test_deleted_queue_frees_name_and_voids_leases(harness: StoreHarness) -> None:
    harness.number(3)
    old = harness.claim(2)
    harness.reject(harness.take())
    harness.do(c.DeleteQueue(queue="q"))
    with pytest.raises(UnknownQueue):
        harness.claim()
    assert harness.dead() == []
    receipts = harness.number(3)
    assert [r.status for r in receipts] == ["queued"] * 3
    new = harness.claim(2)
    assert harness.ack(*old.deliveries, c.ByLease(old.lease_id)) == ["stale"] * 3
    assert harness.do(c.Extend(lease_id=old.lease_id, lease=1_000_000)).verdict == "stale"
    assert counts(harness.group()) == {"held": 2, "unread": 1}
    assert harness.ack(*new.deliveries) == ["acked", "acked"]


def test_deleted_queue_is_purged_in_chunks(harness: StoreHarness) -> None:
    for name in "abc":
        harness.push(*(str(i) for i in range(5)), partition=name)
        harness.push("low", partition=name, priority=2)
    harness.push("later", delay=60)
    harness.reject(*harness.claim(4).deliveries)
    harness.do(c.DeleteQueue(queue="q"))
    harness.push("new", txid="mine")
    rounds = 1
    while harness.do(c.Sweep(duties=("purge",), limit=2)).more:
        rounds += 1
        assert rounds < 50
    assert rounds > 3
    assert harness.claim().bodies == ["new"]
    harness.advance(100)
    assert harness.sweep() == {"expire": 1, "promote": 0, "max_wait": 0, "retain": 0, "forget": 0, "purge": 0}


def test_unknown_queues_are_refused_everywhere(harness: StoreHarness) -> None:
    for command in (
        c.DeleteQueue(queue="x"),
        c.PauseQueue(queue="x"),
        c.ConfigureGroup(queue="x", group="g"),
        c.SeekGroup(queue="x", group="g", to="end"),
        c.DeleteGroup(queue="x", group="g"),
        c.Claim(queue="x"),
    ):
        with pytest.raises(UnknownQueue, match="'x'"):
            harness.do(command)
    for look in (
        lambda: harness.store.ask(q.GetQueue(queue="x")),
        lambda: harness.store.ask(q.Browse(queue="x")),
        lambda: harness.store.ask(q.QueueStats(queue="x")),
        lambda: harness.store.ask(q.ListCursors(queue="x", group="g")),
        lambda: harness.store.ask(q.ListGroups(queue="x")),
        lambda: harness.store.ask(q.ListDead(queue="x")),
    ):
        with pytest.raises(UnknownQueue):
            look()
    assert harness.store.ask(q.ListQueues()) == []


def test_browse_shows_states_and_touches_nothing(harness: StoreHarness) -> None:
    harness.number(6)
    hand = harness.claim(5, group="g")
    harness.ack(hand.deliveries[0])
    harness.reject(hand.deliveries[1])
    harness.retry(hand.deliveries[2], delay=60)
    before = harness.everything()
    assert harness.states("g") == ["acked", "dead", "waiting", "leased", "leased", "ready"]
    assert [b.state for b in harness.store.ask(q.Browse(queue="q"))] == [None] * 6
    assert harness.everything() == before
    harness.seek(4, group="g", partition="Default", by="seq")
    assert harness.states("g") == ["skipped"] * 4 + ["ready"] * 2


def test_browse_pages_by_place(harness: StoreHarness) -> None:
    harness.number(3)
    harness.number(3, partition="p")
    harness.number(1, partition="r", priority=2)
    seen: list[str] = []
    after = None
    while page := harness.store.ask(q.Browse(queue="q", limit=2, after=after)):
        assert len(page) <= 2
        seen += [f"{b.partition}/{b.priority}/{b.message.seq}" for b in page]
        after = (page[-1].message.lane, page[-1].message.seq)
    assert seen == [f"{name}/0/{i}" for name in ("Default", "p") for i in range(3)] + ["r/2/0"]
    assert len(harness.store.ask(q.Browse(queue="q", partition="p"))) == 3


def test_browse_of_something_unknown(harness: StoreHarness) -> None:
    harness.number(1)
    with pytest.raises(UnknownGroup):
        harness.store.ask(q.Browse(queue="q", group="missing"))
    with pytest.raises(UnknownPartition):
        harness.store.ask(q.Browse(queue="q", partition="nowhere"))


def test_queue_stats_count_messages_and_groups(harness: StoreHarness) -> None:
    harness.number(3)
    harness.number(2, partition="p", priority=1)
    harness.push("later", delay=9)
    harness.reject(harness.take(group="g"))
    stats = harness.store.ask(q.QueueStats(queue="q"))
    assert (stats.partitions, stats.messages, stats.scheduled, stats.dead) == (2, 5, 1, 1)
    assert [(g.group, counts(g)) for g in stats.groups] == [("g", {"dead": 1, "unread": 4})]
