"""Brokers of both kinds on a fresh file."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwise.broker import Broker
from ackwise.clock import ManualClock
from ackwise.core.commands import ConfigureQueue
from ackwise.store.port import Store
from tests.broker.both_brokers import AnyBroker, LoopBroker, StartBroker
from tests.broker.support import CountingStore
from tests.broker.watched import WatchedStore
from tests.fresh_stores import Tables, sqlite_url


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT raises `KeyboardInterrupt` in the main thread, also in a test process that ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "broker.db", Tables.QUEUES)


@pytest.fixture
def store(url: str, clock: ManualClock) -> CountingStore:
    return CountingStore(url, clock=clock, seed=1)


@pytest.fixture(params=["threads", "loop"])
def start_broker(request: pytest.FixtureRequest) -> Iterator[StartBroker]:
    """Tests with this fixture run on both kinds of brokers."""
    started: list[AnyBroker] = []

    def start(store: Store, *, background: bool = False) -> AnyBroker:
        on_threads = request.param == "threads"
        made = Broker(store, background=background) if on_threads else LoopBroker(store, background=background)
        started.append(made)
        return made

    yield start
    for broker in started:
        broker.close()
        if isinstance(broker, LoopBroker):
            broker.end_loop()


@pytest.fixture
def broker(store: CountingStore, start_broker: StartBroker) -> AnyBroker:
    """Without background work: nothing happens that the test did not do."""
    made = start_broker(store)
    made.send(ConfigureQueue(queue="q"))
    return made


@pytest.fixture
def watched(url: str, clock: ManualClock) -> WatchedStore:
    return WatchedStore(url, clock)


@pytest.fixture
def watched_broker(watched: WatchedStore, start_broker: StartBroker) -> Iterator[AnyBroker]:
    """A broker without background work on a store that can be held up; it leaves nothing wrong behind."""
    made = start_broker(watched)
    made.send(ConfigureQueue(queue="q"))
    yield made
    watched.gate.set()
    assert watched.audit() == []


@pytest.fixture
def thread_broker(watched: WatchedStore) -> Iterator[Broker]:
    """The same on threads only, for what an event loop cannot do."""
    made = Broker(watched, background=False)
    made.send(ConfigureQueue(queue="q"))
    yield made
    watched.gate.set()
    assert watched.audit() == []
    made.close()
