"""A server with an empty store, its dashboard, and a connection that fills the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ackwise
from tests.dashboard.site import Site
from tests.pg import FACTORIES
from tests.server.running import Running


@pytest.fixture(params=["sqlite", *FACTORIES], ids=lambda name: name.replace("pg_url_factory", "postgres"))
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store, once for each database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/any.db?durability=normal"
    url: str = request.getfixturevalue(request.param)()
    return url


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/dashboard.db?durability=normal"


@pytest.fixture
def server(store_url: str) -> Iterator[Running]:
    with Running(store_url) as running:
        yield running


@pytest.fixture
def site(server: Running) -> Iterator[Site]:
    made = Site(server.url)
    yield made
    made.close()


@pytest.fixture
def queue(server: Running) -> Iterator[ackwise.Connection]:
    with ackwise.connect(server.url) as connection:
        yield connection
