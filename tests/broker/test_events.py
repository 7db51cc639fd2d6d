"""Events of a broker's life."""

from __future__ import annotations

from pathlib import Path

from ackwise.core.commands import Claim, ConfigureQueue
from ackwise.core.events import BrokerStarted, BrokerStopped, EventStream, LeasesExpired, StoreMigrated
from ackwise.core.validation import MICROS
from ackwise.store.sqlite import SQLiteStore
from ackwise.store.sqlite.connection import SCHEMA_VERSION
from tests.broker.both_brokers import StartBroker
from tests.broker.watched import push
from tests.event_log import EventLog


def test_broker_says_when_it_starts_and_stops(tmp_path: Path, start_broker: StartBroker) -> None:
    stream = EventStream()
    with EventLog(stream) as log:
        store = SQLiteStore(f"sqlite:///{tmp_path}/q.db", instance="one", events=stream)
        start_broker(store).close()
    where = str(tmp_path / "q.db")
    born = [event for event in log.events if isinstance(event, StoreMigrated | BrokerStarted | BrokerStopped)]
    assert born == [StoreMigrated(where, 0, SCHEMA_VERSION), BrokerStarted("one", where), BrokerStopped("one")]


def test_store_that_is_up_to_date_does_not_migrate(tmp_path: Path) -> None:
    SQLiteStore(f"sqlite:///{tmp_path}/q.db").close()
    stream = EventStream()
    with EventLog(stream) as log:
        SQLiteStore(f"sqlite:///{tmp_path}/q.db", events=stream).close()
    assert log.of(StoreMigrated) == []


def test_sweep_of_the_background_is_heard(tmp_path: Path, start_broker: StartBroker) -> None:
    store = SQLiteStore(f"sqlite:///{tmp_path}/q.db?durability=normal")
    broker = start_broker(store, background=True)
    broker.send(ConfigureQueue(queue="q"))
    broker.send(push("a"))
    with EventLog(store.events) as log:
        broker.claim(Claim(queue="q", most=1, lease=MICROS // 10))
        assert log.wait_for(LeasesExpired).count == 1
