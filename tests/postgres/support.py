"""Short spellings of commands, and threads that start together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import psycopg

from ackwise.core.answers import Claimed, Settled
from ackwise.core.commands import ByLease, Claim, Push, Settle, Settlement
from ackwise.core.messages import NewMessage, Receipt
from ackwise.core.settlement import Outcome
from ackwise.store.postgres import PostgresStore
from tests.patience import PATIENCE
from tests.postgres.conftest import Raw

T = TypeVar("T")


def push(store: PostgresStore, *messages: NewMessage, queue: str = "q", shard: int = 0) -> list[Receipt]:
    (result,) = store.transact([Push(queue=queue, messages=list(messages))], shard)
    return list(result)


def text(body: str, partition: str = "p", transaction_id: str | None = None) -> NewMessage:
    return NewMessage(body.encode(), partition=partition, transaction_id=transaction_id)


def claim(store: PostgresStore, command: Claim, shard: int = 0) -> Claimed:
    (result,) = store.transact([command], shard)
    assert isinstance(result, Claimed), result
    return result


def places(claimed: Claimed) -> list[tuple[int, int]]:
    return [(grant.lane, seq) for grant in claimed.grants for seq in range(grant.lo, grant.hi)]


def settle_lease(store: PostgresStore, claimed: Claimed, outcome: Outcome = Outcome.ACK, shard: int = 0) -> Settled:
    entry = Settlement(selector=ByLease(claimed.lease_id), outcome=outcome)
    ((settled,),) = store.transact([Settle(entries=[entry])], shard)
    assert isinstance(settled, Settled)
    return settled


def together(count: int, work: Callable[[int], T]) -> list[T]:
    """Run `work(0)` to `work(count - 1)` in threads that all start at the same moment."""
    gate = threading.Barrier(count)

    def run(number: int) -> T:
        gate.wait(PATIENCE)
        return work(number)

    with ThreadPoolExecutor(count) as threads:
        futures: list[Future[T]] = [threads.submit(run, number) for number in range(count)]
        return [future.result(PATIENCE) for future in futures]


def until(holds: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def waiting(raw: Raw) -> bool:
    """Whether a store waits for a row lock."""
    with raw() as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND database IS NOT DISTINCT FROM database"
        ).fetchone()
    return bool(row and row[0])


def lock_partition(connection: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    connection.execute("SELECT 1 FROM part WHERE name = %s FOR UPDATE", (name,))


def kill_all(raw: Raw) -> None:
    """End every other connection to the database, as a failover would."""
    with raw() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
