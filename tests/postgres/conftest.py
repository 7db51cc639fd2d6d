"""Every test here runs on our own PostgreSQL and on the one that is given, if one is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from ackwise.clock import ManualClock
from ackwise.store.postgres import PostgresStore
from tests.pg import FACTORIES

Opener = Callable[..., PostgresStore]
Raw = Callable[[], "psycopg.Connection[tuple[object, ...]]"]


@pytest.fixture(params=FACTORIES)
def url(request: pytest.FixtureRequest) -> str:
    """An empty database."""
    made: str = request.getfixturevalue(request.param)()
    return made


@pytest.fixture
def opened(url: str) -> Iterator[Opener]:
    """Opens stores on the database; afterwards it must pass the audit."""
    stores: list[PostgresStore] = []

    def open_store(options: str = "") -> PostgresStore:
        joint = "&" if "?" in url else "?"
        stores.append(PostgresStore(url + (joint + options if options else "")))
        return stores[-1]

    yield open_store
    try:
        if stores:
            assert stores[0].audit() == []
    finally:
        for store in stores:
            store.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(url: str, clock: ManualClock) -> Iterator[PostgresStore]:
    """One with a clock of the test's own; afterwards it must pass the audit."""
    made = PostgresStore(url, clock=clock)
    yield made
    try:
        assert made.audit() == []
    finally:
        made.close()


@pytest.fixture
def raw(url: str) -> Iterator[Raw]:
    """Plain connections, which play another client of the database."""
    made: list[psycopg.Connection[tuple[object, ...]]] = []

    def connect() -> psycopg.Connection[tuple[object, ...]]:
        made.append(psycopg.connect(url, options="-c search_path=ackwise"))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()
