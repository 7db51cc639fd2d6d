"""The oldest live leases: order, filter, pages and limits."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from tests.engine.store_harness import StoreHarness


def lease_ids(harness: StoreHarness, query: q.ListOldestLeases) -> list[str]:
    return [row.lease_id for row in harness.store.ask(query)]


def claim_each(harness: StoreHarness, *queues: str, seconds: float = 60) -> list[str]:
    """Ids of leases on one message of each queue, one second apart."""
    claimed = []
    for queue in queues:
        harness.push("x", queue=queue)
        claimed.append(harness.claim(1, queue=queue, group="g", seconds=seconds).lease_id)
        harness.advance(1)
    return claimed


def test_oldest_leases_of_all_queues_are_oldest_first(harness: StoreHarness) -> None:
    claimed = claim_each(harness, "b", "a", "b", "c")
    assert lease_ids(harness, q.ListOldestLeases()) == claimed
    assert lease_ids(harness, q.ListOldestLeases(limit=2)) == claimed[:2]
    assert lease_ids(harness, q.ListOldestLeases(limit=0)) == []


def test_oldest_leases_are_ten_by_default(harness: StoreHarness) -> None:
    claimed = claim_each(harness, *(["q"] * 12))
    assert lease_ids(harness, q.ListOldestLeases()) == claimed[:10]


def test_oldest_leases_with_queue_leave_out_other_queues(harness: StoreHarness) -> None:
    claimed = claim_each(harness, "b", "a", "b")
    assert lease_ids(harness, q.ListOldestLeases(queue="b")) == [claimed[0], claimed[2]]
    assert lease_ids(harness, q.ListOldestLeases(queue="unknown")) == []


def test_oldest_leases_have_the_row_of_list_leases(harness: StoreHarness) -> None:
    harness.push("x", "y", "z")
    hand = harness.claim(3, group="g", owner="me", key="k")
    harness.ack(hand.deliveries[0])
    (row,) = harness.store.ask(q.ListOldestLeases())
    assert [row] == harness.store.ask(q.ListLeases())
    assert (row.owner, row.key, row.granted, row.held) == ("me", "k", 3, 2)


def test_oldest_leases_leave_out_expired_before_a_sweep(harness: StoreHarness) -> None:
    harness.push("x", "y")
    short = harness.claim(1, group="g", seconds=5).lease_id
    long = harness.claim(1, group="g", seconds=60).lease_id
    harness.advance(4)
    assert lease_ids(harness, q.ListOldestLeases()) == [short, long]
    harness.advance(1)
    assert lease_ids(harness, q.ListOldestLeases()) == [long]


def test_oldest_leases_leave_out_settled_and_deleted(harness: StoreHarness) -> None:
    harness.push("x", "y")
    harness.ack(*harness.claim(1, group="g").deliveries)
    harness.claim(1, group="g")
    (kept,) = claim_each(harness, "other")
    harness.do(c.DeleteQueue(queue="q"))
    assert lease_ids(harness, q.ListOldestLeases()) == [kept]


def test_extended_lease_keeps_its_place(harness: StoreHarness) -> None:
    claimed = claim_each(harness, "a", "b")
    harness.do(c.Extend(lease_id=claimed[0], lease=600_000_000))
    assert lease_ids(harness, q.ListOldestLeases()) == claimed


def test_lease_made_by_an_earlier_clock_comes_first(harness: StoreHarness) -> None:
    (late,) = claim_each(harness, "a")
    harness.advance(-10)
    (early,) = claim_each(harness, "b")
    assert lease_ids(harness, q.ListOldestLeases()) == [early, late]


def test_oldest_leases_of_one_instant_are_paged_by_number(harness: StoreHarness) -> None:
    harness.push(*"abc")
    claimed = [harness.claim(1, group="g").lease_id for _ in range(3)]
    page = harness.store.ask(q.ListOldestLeases(limit=2))
    assert [row.lease_id for row in page] == claimed[:2]
    after = (page[-1].made_at, page[-1].lease_id)
    assert lease_ids(harness, q.ListOldestLeases(after=after)) == claimed[2:]


@pytest.mark.parametrize(
    "query",
    [q.ListOldestLeases(limit=1001), q.ListOldestLeases(limit=-1), q.ListOldestLeases(after=(1, "no lease"))],
)
def test_oldest_leases_with_bad_field_raise_bad_input(harness: StoreHarness, query: q.ListOldestLeases) -> None:
    with pytest.raises(BadInput):
        harness.store.ask(query)
