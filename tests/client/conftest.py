"""A connection to a fresh SQLite file, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ackwise
from ackwise.connect import open_store
from ackwise.store.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queues.db?durability=normal"


@pytest.fixture
def queue(url: str, clock: ManualClock) -> Iterator[ackwise.Connection]:
    """Whatever a test leaves behind must pass the audit."""
    with ackwise.connect(url, clock=clock) as connection:
        yield connection
    store = open_store(url, clock=clock)
    try:
        assert store.audit() == []
    finally:
        store.close()
