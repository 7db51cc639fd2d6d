"""One suite, every store: each test runs on SQLite and on PostgreSQL, and the state it leaves must pass the audit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwise.clock import ManualClock
from ackwise.store.database_store import DatabaseStore
from ackwise.store.postgres import PostgresStore
from ackwise.store.sqlite import SQLiteStore
from tests.engine.store_harness import StoreHarness
from tests.fresh_stores import Tables, sqlite_url
from tests.pg import FACTORIES


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", *FACTORIES], ids=lambda name: name.replace("pg_url_factory", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[DatabaseStore]:
    made: DatabaseStore
    if request.param == "sqlite":
        made = SQLiteStore(sqlite_url(tmp_path / "queues.db", Tables.QUEUES), clock=clock, seed=1)
    else:
        made = PostgresStore(request.getfixturevalue(request.param)(Tables.QUEUES), clock=clock, seed=1)
    yield made
    try:
        assert made.audit() == []
    finally:
        made.close()


@pytest.fixture
def harness(store: DatabaseStore, clock: ManualClock) -> StoreHarness:
    return StoreHarness(store, clock)
