"""A claim that skips expired leases because another turn holds them, when that turn ends before the claim does."""

from __future__ import annotations

import pytest
from psycopg import Connection

from ackwise.clock import ManualClock
from ackwise.core.commands import Claim, ConfigureQueue
from ackwise.core.messages import NewMessage
from ackwise.core.policy import Exclusivity
from ackwise.core.spans import Cursor
from ackwise.core.validation import MICROS
from ackwise.engine import claim as claiming
from ackwise.engine.ports import Params, Row
from ackwise.store.postgres import PostgresStore
from ackwise.store.postgres.session import PostgresSession
from tests.postgres.conftest import Raw
from tests.postgres.support import claim, lock_partition, push, settle_lease

NOTHING: Params = {}


@pytest.fixture
def somebody(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> Connection[tuple[object, ...]]:
    """Whatever it has locked, it is done with as soon as a claim has looked at its first lane."""
    made = raw()
    plain = claiming._QueueClaim._take

    def take(self: claiming._QueueClaim, cursor: Cursor) -> None:
        plain(self, cursor)
        made.rollback()

    monkeypatch.setattr(claiming._QueueClaim, "_take", take)
    return made


def item(partition: str, priority: int = 0) -> NewMessage:
    return NewMessage(b"x", partition=partition, priority=priority)


@pytest.mark.parametrize("more", [1, 40], ids=["on one page", "on several pages"])
@pytest.mark.parametrize("limit", [None, 1], ids=["comes back", "dies"])
@pytest.mark.parametrize("exclusivity", ["none", "partition"])
def test_lanes_picked_before_a_second_look_stay_as_read(
    store: PostgresStore,
    clock: ManualClock,
    somebody: Connection[tuple[object, ...]],
    exclusivity: Exclusivity,
    limit: int | None,
    more: int,
) -> None:
    store.transact([ConfigureQueue("q", {"delivery_limit": limit})])
    push(store, item("a"), item("busy"))
    ours = Claim(queue="q", most=100, lease=MICROS, exclusivity=exclusivity, owner="we")
    assert len(claim(store, ours).grants) == 2
    push(store, item("a"), *(item(f"c{number}") for number in range(more)))
    clock.advance(1)
    lock_partition(somebody, "busy")
    got = claim(store, ours)
    assert {grant.partition for grant in got.grants} == {"a", *(f"c{number}" for number in range(more))}
    assert store.audit() == []
    settle_lease(store, got)
    rest = claim(store, ours)
    assert [grant.partition for grant in rest.grants] == ([] if limit else ["a", "busy"])
    settle_lease(store, rest)
    push(store, item("a"))
    others = Claim(queue="q", exclusivity="partition", owner="somebody else")
    assert [grant.partition for grant in claim(store, others).grants] == ["a"], "it is not held"


def test_lanes_read_but_not_picked_are_read_again(
    store: PostgresStore, clock: ManualClock, somebody: Connection[tuple[object, ...]]
) -> None:
    push(store, item("a", 5), item("busy"))
    assert len(claim(store, Claim(queue="q", most=100, lease=MICROS, exclusivity="none")).grants) == 2
    push(store, item("a", 5))
    before = clock.now()
    clock.advance(1)
    push(store, item("a", 1), item("c", 2), item("d", 2), item("e", 2), item("f", 3))
    lock_partition(somebody, "busy")
    got = claim(store, Claim(queue="q", most=2, exclusivity="none", pushed_by=before))
    assert [(grant.partition, grant.priority, grant.lo) for grant in got.grants] == [("a", 5, 0), ("a", 5, 1)]


def test_claim_of_many_partitions_looks_again_once(
    store: PostgresStore, clock: ManualClock, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(store, item("busy"))
    claim(store, Claim(queue="q", lease=MICROS))
    before = clock.now()
    clock.advance(1)
    parts = tuple(f"c{number}" for number in range(20))
    push(store, *map(item, parts))
    lock_partition(raw(), "busy")
    asked: list[str] = []
    rows = PostgresSession.rows

    def watched(self: PostgresSession, name: str, params: Params = NOTHING) -> list[Row]:
        asked.append(name)
        return rows(self, name, params)

    monkeypatch.setattr(PostgresSession, "rows", watched)
    assert claim(store, Claim(queue="q", partitions=parts, pushed_by=before)).grants == []
    assert asked.count("cursors_of_part") == 20
    assert asked.count("leases_expired_in_group") == 1
