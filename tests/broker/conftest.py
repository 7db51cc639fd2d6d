"""A broker on a fresh file, with and without its background threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwise.broker import Broker
from ackwise.core.commands import ConfigureQueue
from ackwise.store.clock import ManualClock
from tests.broker.support import CountingStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/broker.db?durability=normal"


@pytest.fixture
def store(url: str, clock: ManualClock) -> CountingStore:
    return CountingStore(url, clock=clock, seed=1)


@pytest.fixture
def broker(store: CountingStore) -> Iterator[Broker]:
    """Without background threads: nothing happens that the test did not do."""
    made = Broker(store, background=False)
    made.send(ConfigureQueue(queue="q"))
    yield made
    made.close()
