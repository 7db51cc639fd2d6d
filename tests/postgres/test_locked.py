"""One locked partition blocks no other partition, and expiry takes part in no deadlock."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from ackwise.core.commands import ByLease as Lease
from ackwise.core.commands import Claim, Command, Push, Settle, Settlement, Sweep
from ackwise.core.errors import StoreLocked, StoreUnavailable
from ackwise.core.queries import ListLeases
from ackwise.core.settlement import Outcome
from ackwise.store.postgres.locks import LEAST_SECONDS, LockBudget
from tests.patience import PATIENCE
from tests.postgres.conftest import Opener, Raw
from tests.postgres.support import claim, lock_partition, push, text, together, until, waiting


def one_push(body: str, partition: str, queue: str = "q") -> Push:
    return Push(queue=queue, messages=[text(body, partition=partition)])


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each command of a broken-up turn was allowed to wait for a lock."""
    allowed: list[float] = []
    original = LockBudget.limit

    @contextmanager
    def noted(self: LockBudget, command: Command) -> Iterator[float]:
        with original(self, command) as patience:
            allowed.append(patience)
            yield patience

    monkeypatch.setattr(LockBudget, "limit", noted)
    return allowed


def test_locked_partition_holds_up_its_turn_once(opened: Opener, raw: Raw, waits: list[float]) -> None:
    store = opened("busy_timeout=1")
    push(store, text("x", partition="busy"))
    push(store, text("x", partition="free"), queue="other")
    lock_partition(raw(), "busy")
    commands: list[Command] = [*(one_push(f"{n}", "busy") for n in range(5)), one_push("y", "free", "other")]
    *refused, done = store.transact(commands)
    assert len(waits) == 2, "the first to the locked partition, and the one to the free one"
    assert sum(waits) < 1.0
    assert [type(one) for one in refused] == [StoreLocked] * 5
    assert done[0].status == "queued"


def test_commands_on_locked_partition_are_refused_soon(opened: Opener, raw: Raw, waits: list[float]) -> None:
    store = opened("busy_timeout=1")
    push(store, text("1", partition="busy"), text("2", partition="free"))
    held = claim(store, Claim(queue="q", partitions=("busy",)))
    lock_partition(raw(), "busy")
    commands: list[Command] = [
        one_push("y", "busy"),
        Claim(queue="q", partitions=("busy",)),
        Settle(entries=[Settlement(selector=Lease(held.lease_id), outcome=Outcome.ACK)]),
        Push(queue="q", messages=[text("y", partition="busy"), text("y", partition="free")]),
        Claim(queue="q", partitions=("free",)),
        one_push("y", "free"),
    ]
    results = store.transact(commands * 2)
    assert sum(waits) < 1.5, "all together wait little longer than one would alone"
    for number, result in enumerate(results):
        assert isinstance(result, StoreLocked) == (number % 6 < 4), (number, result)


def test_command_without_a_refusal_of_its_own_waits_briefly() -> None:
    budget = LockBudget(2.0)
    with budget.limit(one_push("x", "a")) as patience:
        assert 0.2 < patience < 2.0
    with pytest.raises(psycopg.errors.LockNotAvailable), budget.limit(one_push("x", "a")):
        raise psycopg.errors.LockNotAvailable("held")
    with pytest.raises(StoreLocked, match="held"), budget.limit(one_push("y", "a")):
        raise AssertionError("it is not tried")
    with budget.limit(one_push("x", "b")) as patience:
        assert patience > LEAST_SECONDS


def test_expiry_locks_no_lease_whose_partition_another_has(opened: Opener, raw: Raw) -> None:
    """The partition's holder may need the lease next: it must not wait for a turn that waits for the partition."""
    store = opened()
    push(store, text("1"), text("2"))
    theirs = claim(store, Claim(queue="q", lease=1000))
    other = raw()
    lock_partition(other, "p")
    until(lambda: store.clock.now() > theirs.deadline)
    with ThreadPoolExecutor(1) as threads:
        ours = threads.submit(claim, store, Claim(queue="q"))
        until(lambda: waiting(raw))
        other.execute("SET lock_timeout = '100ms'")
        other.execute("SELECT 1 FROM lease WHERE no = %s FOR UPDATE", (theirs.lease_no,))
        other.commit()
        claimed = ours.result(PATIENCE)
    assert claimed.count == 1
    store.transact([Sweep(duties=("expire",))])
    assert [row.lease_id for row in store.ask(ListLeases())] == [claimed.lease_id]


def test_lease_in_free_partition_expires_beside_locked_one(opened: Opener, raw: Raw) -> None:
    store = opened()
    push(store, text("1", partition="theirs"), text("2", partition="ours"))
    held = store.transact([Claim(queue="q", partitions=(name,), lease=1000) for name in ("theirs", "ours")])
    until(lambda: store.clock.now() > held[1].deadline)
    other = raw()
    lock_partition(other, "theirs")
    (swept,) = store.transact([Sweep(duties=("expire",))])
    assert swept.done == {"expire": 1}
    assert [row.lease_id for row in store.ask(ListLeases())] == [held[0].lease_id]
    other.rollback()
    (swept,) = store.transact([Sweep(duties=("expire",))])
    assert swept.done == {"expire": 1}


def test_turn_ends_once(opened: Opener) -> None:
    store = opened()
    committed = store.prepare([one_push("x", "p")])
    committed.commit()
    committed.abandon()
    abandoned = store.prepare([one_push("y", "p")])
    abandoned.abandon()
    abandoned.commit()
    assert claim(store, Claim(queue="q", most=9)).count == 1


def test_readers_share_their_connections_without_a_race(opened: Opener) -> None:
    store = opened()

    def work(_: int) -> None:
        for _ in range(20):
            store.ask(ListLeases())

    together(8, work)
    assert len(store._readers._free) <= 4


def test_reader_that_comes_back_late_is_closed(opened: Opener) -> None:
    store = opened()
    with store._readers._use() as session:
        store._readers.close()
    assert session.connection.closed
    with pytest.raises(StoreUnavailable):
        store.ask(ListLeases())
    store._readers._closed = False
