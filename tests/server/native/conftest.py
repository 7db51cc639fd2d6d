"""A server in this process, and a desk to call its native routes from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from ackwise.store.clock import ManualClock
from tests.server.native.desk import Desk
from tests.server.running import Running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/native.db?durability=normal"


@pytest.fixture
def server(store_url: str, clock: ManualClock) -> Iterator[Running]:
    with Running(store_url, clock) as running:
        yield running


@pytest.fixture
def native(server: Running, clock: ManualClock) -> Iterator[Desk]:
    with httpx2.Client(base_url=server.url, timeout=30) as http:
        yield Desk(http, clock)


@pytest.fixture
def native_anywhere(any_store: str, clock: ManualClock) -> Iterator[Desk]:
    with Running(any_store, clock) as server, httpx2.Client(base_url=server.url, timeout=30) as http:
        yield Desk(http, clock)
