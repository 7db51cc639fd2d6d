"""A running server on a clock that the test moves, with an HTTP client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from ackwise.clock import ManualClock
from tests.server.running import Running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/q.db?durability=normal"


@pytest.fixture
def server(store: str, clock: ManualClock) -> Iterator[Running]:
    with Running(store, clock) as running:
        yield running


@pytest.fixture
def http(server: Running) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url) as client:
        yield client
