"""A connection to a fresh SQLite file, embedded and over HTTP, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ackwise
from ackwise.clock import ManualClock
from ackwise.connect import open_store
from tests.fresh_stores import sqlite_url
from tests.server.running import Running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "queues.db")


@pytest.fixture(params=["embedded", "http"])
def url(request: pytest.FixtureRequest, store_url: str, clock: ManualClock) -> Iterator[str]:
    """Whatever a test leaves behind must pass the audit."""
    if request.param == "http":
        with Running(store_url, clock) as server:
            yield server.url
        return
    yield store_url
    store = open_store(store_url, clock=clock)
    try:
        assert store.audit() == []
    finally:
        store.close()


@pytest.fixture
def queue(url: str, clock: ManualClock) -> Iterator[ackwise.Connection]:
    """A connection whose new queues retry at once, so that tests need not move the clock. See test_defaults.py."""
    with ackwise.connect(url, clock=clock) as connection:
        connection.new_queue_policy = ackwise.QueuePolicy()
        yield connection
