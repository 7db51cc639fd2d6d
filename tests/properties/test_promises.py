"""The promises of the design under random work, crashes and clock jumps. `ACKWISE_HYPOTHESIS=deep` runs much longer."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from ackwise.clock import ManualClock
from ackwise.store.database_store import DatabaseStore
from ackwise.store.postgres import PostgresStore
from ackwise.store.sqlite import SQLiteStore
from ackwise.store.turn_runner import LedgerCounts
from tests.pg import FACTORIES
from tests.pg_databases import clean
from tests.properties.machine import Disk, Machine

DEEP = os.environ.get("ACKWISE_HYPOTHESIS") == "deep"
EXCLUSIVITIES = ("none", "partition", "queue")


def bounds(examples: int, deep: int) -> settings:
    return settings(
        max_examples=deep if DEEP else examples,
        stateful_step_count=60 if DEEP else 30,
        derandomize=not DEEP,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


class SQLiteDisk:
    """A file per example; small dedupe generations, so that sealing happens."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._files, self._opened = folder, 0, 0

    def open(self, clock: ManualClock) -> DatabaseStore:
        self._opened += 1
        url = f"sqlite:///{self._folder}/{self._files}.db?durability=normal"
        return SQLiteStore(url, clock=clock, seed=self._opened, dedupe_generation=6, instance=f"broker {self._opened}")

    def crash(self, store: DatabaseStore) -> None:
        """Its connections go, and with them what it kept in memory."""
        assert isinstance(store, SQLiteStore)
        store._writer.counts = LedgerCounts("crashed")
        store.close()

    def clear(self) -> None:
        for file in self._folder.glob(f"{self._files}.db*"):
            file.unlink()
        self._files += 1


class PostgresDisk:
    """One database, emptied after each example."""

    def __init__(self, url: str) -> None:
        self._url, self._opened = url, 0

    def open(self, clock: ManualClock) -> DatabaseStore:
        self._opened += 1
        return PostgresStore(self._url, clock=clock, seed=self._opened * 100)

    def crash(self, store: DatabaseStore) -> None:
        """Its connections go, and with them what it kept in memory."""
        assert isinstance(store, PostgresStore)
        for writer in store._writers:
            writer.counts = LedgerCounts("crashed")
        store.close()

    def clear(self) -> None:
        clean(self._url)


def run(disk: Disk, exclusivity: str, how: settings) -> None:
    make: Any = partial(Machine, disk, exclusivity)
    run_state_machine_as_test(make, settings=how)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("exclusivity", EXCLUSIVITIES)
def test_queue_on_sqlite_keeps_the_promises(tmp_path: Path, exclusivity: str) -> None:
    disk = SQLiteDisk(tmp_path)
    run(disk, exclusivity, bounds(60, 1500))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("exclusivity", EXCLUSIVITIES)
def test_queue_on_postgres_keeps_the_promises(request: pytest.FixtureRequest, factory: str, exclusivity: str) -> None:
    make: Callable[[], str] = request.getfixturevalue(factory)
    disk = PostgresDisk(make())
    run(disk, exclusivity, bounds(7, 150))
