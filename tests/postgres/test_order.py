"""Order within a partition, also for a claim that had to wait for it: what it read before is looked at again."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from ackwise.clock import ManualClock
from ackwise.core.answers import Claimed
from ackwise.core.commands import Claim
from ackwise.core.messages import NewMessage
from ackwise.core.policy import Exclusivity
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from ackwise.store.postgres import PostgresStore
from tests.patience import PATIENCE
from tests.postgres.conftest import Raw
from tests.postgres.support import claim, lock_partition, push, settle_lease, until


def item(body: str, priority: int) -> NewMessage:
    return NewMessage(body.encode(), partition="p", priority=priority)


def bodies(store: PostgresStore, claimed: Claimed) -> list[str]:
    return [
        segment.message(seq).payload.decode()
        for grant, segments in zip(claimed.grants, store.read(claimed.ranges), strict=True)
        for segment in segments
        for seq in range(max(grant.lo, segment.first), min(grant.hi, segment.last + 1))
    ]


def how_many_wait(raw: Raw) -> int:
    with raw() as connection:
        row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()
    assert row is not None
    return int(str(row[0]))


@pytest.mark.parametrize("exclusivity", ["none", "queue"])
@pytest.mark.parametrize("priority", [0, 7])
def test_expired_lease_messages_come_before_newer_ones(
    store: PostgresStore, clock: ManualClock, raw: Raw, exclusivity: Exclusivity, priority: int
) -> None:
    """Another turn held the partition when the claim expired leases, so the claim skipped this one."""
    push(store, item("old", 0))
    claim(store, Claim(queue="q", lease=MICROS, exclusivity="none"))
    push(store, item("new", priority))
    clock.advance(1)
    somebody = raw()
    lock_partition(somebody, "p")
    with ThreadPoolExecutor(1) as threads:
        claiming: Future[Claimed] = threads.submit(claim, store, Claim(queue="q", most=1, exclusivity=exclusivity))
        until(lambda: how_many_wait(raw) == 1)
        somebody.rollback()
        assert bodies(store, claiming.result(PATIENCE)) == ["old"]


def test_returned_messages_come_before_less_urgent_ones(store: PostgresStore, raw: Raw) -> None:
    push(store, item("urgent", 0))
    held = claim(store, Claim(queue="q"))
    push(store, item("not urgent", 7))
    somebody = raw()
    lock_partition(somebody, "p")
    with ThreadPoolExecutor(2) as threads:
        settling = threads.submit(settle_lease, store, held, Outcome.RELEASE)
        until(lambda: how_many_wait(raw) == 1)
        claiming = threads.submit(claim, store, Claim(queue="q", most=1), 1)
        until(lambda: how_many_wait(raw) == 2)
        somebody.rollback()
        assert settling.result(PATIENCE).verdict == "released"
        assert bodies(store, claiming.result(PATIENCE)) == ["urgent"]


def test_free_partition_does_not_wait_for_locked_one(store: PostgresStore, raw: Raw) -> None:
    push(store, item("urgent", 0), NewMessage(b"free", partition="other", priority=7))
    assert claim(store, Claim(queue="q", priorities=(5,))).grants == [], "it makes the group"
    lock_partition(raw(), "p")
    assert bodies(store, claim(store, Claim(queue="q", most=1))) == ["free"]
