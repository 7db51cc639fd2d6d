"""Consumers: owners of live leases and of recent claims, by queue, group and name."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from tests.contract.store_harness import StoreHarness


def names(harness: StoreHarness, query: q.ListConsumers) -> list[tuple[str, str, str]]:
    return [(row.queue, row.group, row.consumer) for row in harness.store.ask(query)]


def test_consumers_are_owners_by_queue_group_and_name(harness: StoreHarness) -> None:
    for queue, group, owner in (("b", "g", "y"), ("a", "h", "x"), ("a", "g", "x"), ("a", "g", "w")):
        harness.push("m", queue=queue)
        harness.claim(1, queue=queue, group=group, owner=owner)
    expected = [("a", "g", "w"), ("a", "g", "x"), ("a", "h", "x"), ("b", "g", "y")]
    assert names(harness, q.ListConsumers()) == expected
    assert names(harness, q.ListConsumers(queue="a", group="g")) == expected[:2]
    assert names(harness, q.ListConsumers(queue="unknown")) == []


def test_consumer_row_counts_leases_messages_and_claims(harness: StoreHarness) -> None:
    harness.push(*"abcde")
    first = harness.claim(2, group="g", owner="me", seconds=30)
    harness.advance(1)
    second = harness.claim(2, group="g", owner="me", seconds=60)
    harness.ack(first.deliveries[0])
    (row,) = harness.store.ask(q.ListConsumers())
    leases = {lease.lease_id: lease for lease in harness.store.ask(q.ListLeases())}
    assert (row.leases, row.held, row.claims) == (2, 3, 2)
    assert row.deadline == leases[second.lease_id].deadline
    assert row.last_claim_at == leases[second.lease_id].made_at


def test_consumers_without_owner_are_one_unnamed_row(harness: StoreHarness) -> None:
    harness.push(*"abc")
    harness.claim(1, group="g")
    harness.claim(1, group="g")
    harness.claim(1, group="g", owner="lease-of-mine")
    assert names(harness, q.ListConsumers()) == [("q", "g", ""), ("q", "g", "lease-of-mine")]
    assert harness.store.ask(q.ListConsumers())[0].leases == 2


def test_consumer_without_live_lease_stays_while_recent(harness: StoreHarness) -> None:
    harness.push("a")
    harness.ack(*harness.claim(1, group="g", owner="me").deliveries)
    harness.advance(59)
    (row,) = harness.store.ask(q.ListConsumers())
    assert (row.leases, row.held, row.claims, row.deadline) == (0, 0, 1, None)
    harness.advance(1)
    assert names(harness, q.ListConsumers()) == []
    assert names(harness, q.ListConsumers(recent=120_000_000)) == [("q", "g", "me")]


def test_consumer_of_expired_lease_is_not_live(harness: StoreHarness) -> None:
    harness.push("a", "b")
    harness.claim(1, group="g", owner="late", seconds=5)
    harness.claim(1, group="g", owner="live", seconds=50)
    harness.advance(5)
    assert [row.leases for row in harness.store.ask(q.ListConsumers())] == [0, 1]
    assert names(harness, q.ListConsumers(recent=0)) == [("q", "g", "live")]


def test_consumers_of_deleted_queue_are_gone(harness: StoreHarness) -> None:
    harness.push("a")
    harness.claim(1, group="g", owner="me")
    harness.do(c.DeleteQueue(queue="q"))
    assert names(harness, q.ListConsumers()) == []


@pytest.mark.parametrize(
    "query",
    [q.ListConsumers(limit=10_001), q.ListConsumers(recent=-1), q.ListConsumers(recent=3_600_000_001)],
)
def test_consumers_with_bad_field_raise_bad_input(harness: StoreHarness, query: q.ListConsumers) -> None:
    with pytest.raises(BadInput):
        harness.store.ask(query)
