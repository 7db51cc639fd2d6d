"""One suite, every store: each test runs on SQLite and on PostgreSQL, and the state it leaves must pass the audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ackwise.store.clock import ManualClock
from ackwise.store.port import Store
from ackwise.store.sqlite import SQLiteStore
from tests.contract.support import Desk


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock, pg_url_factory: Callable[[], str]
) -> Iterator[Store]:
    made: Store
    if request.param == "sqlite":
        made = SQLiteStore(f"sqlite:///{tmp_path}/queues.db?durability=normal", clock=clock, seed=1)
    yield made
    try:
        assert made.audit() == []
    finally:
        made.close()


@pytest.fixture
def desk(store: Store, clock: ManualClock) -> Desk:
    return Desk(store, clock)
