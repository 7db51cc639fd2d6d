"""A server in this process, and a client of its native routes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from ackwise.clock import ManualClock
from tests.fresh_stores import sqlite_url
from tests.patience import PATIENCE
from tests.protocols.native.native_api import NativeApi
from tests.server.running import Running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "native.db")


@pytest.fixture
def server(store_url: str, clock: ManualClock) -> Iterator[Running]:
    with Running(store_url, clock) as running:
        yield running


@pytest.fixture
def native(server: Running, clock: ManualClock) -> Iterator[NativeApi]:
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        yield NativeApi(http, clock)


@pytest.fixture
def native_anywhere(any_store: str, clock: ManualClock) -> Iterator[NativeApi]:
    with Running(any_store, clock) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        yield NativeApi(http, clock)
