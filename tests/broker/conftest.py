"""A broker on a fresh file, with and without its background threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwise.broker import Broker
from ackwise.core.commands import ConfigureQueue
from ackwise.store.clock import ManualClock
from tests.broker.support import CountingStore
from tests.broker.watched import WatchedStore


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


@pytest.fixture
def watched(url: str, clock: ManualClock) -> WatchedStore:
    return WatchedStore(url, clock)


@pytest.fixture
def desk(watched: WatchedStore) -> Iterator[Broker]:
    """A broker without background threads on a store that can be held up; it leaves nothing wrong behind."""
    made = Broker(watched, background=False)
    made.send(ConfigureQueue(queue="q"))
    yield made
    watched.gate.set()
    assert watched.audit() == []
    made.close()
