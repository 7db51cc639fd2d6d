"""A server on each store for a module; each test has a queue of its own, and the clock is moved by hand."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from ackwise.clock import ManualClock
from tests.patience import PATIENCE
from tests.pg_databases import Databases
from tests.protocols.pushpop.pushpop_api import PushPopApi
from tests.server.running import Running


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('pushpop')}/shared.db?durability=normal"
        return
    databases = Databases(request.getfixturevalue("pg_admin_url"), "pushpop")
    yield databases.fresh()
    databases.drop()


@pytest.fixture(scope="module")
def server(shared_store: str, clock: ManualClock) -> Iterator[Running]:
    with Running(shared_store, clock) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: Running) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def pushpop(http: httpx2.Client, clock: ManualClock) -> PushPopApi:
    return PushPopApi(http, clock)
