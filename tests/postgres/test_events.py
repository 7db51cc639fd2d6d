"""Events of connections to PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from ackwise.broker import Broker
from ackwise.core.commands import Push
from ackwise.core.errors import OutcomeUnknown
from ackwise.core.events import (
    BrokerStarted,
    BrokerStopped,
    ConnectionLost,
    ConnectionRestored,
    EventStream,
    StoreMigrated,
)
from ackwise.core.messages import NewMessage
from ackwise.core.queries import ListQueues
from ackwise.store.postgres import PostgresStore
from ackwise.store.postgres.schema import SCHEMA_VERSION
from ackwise.store.postgres.session import PostgresSession
from tests.event_log import EventLog


def test_lost_connection_is_heard_once_and_so_is_its_return(pg_url_factory: Callable[[], str]) -> None:
    url = pg_url_factory()
    store = PostgresStore(url)
    try:
        assert store.listening(10)
        with EventLog(store.events) as log, psycopg.connect(url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            lost, back = log.wait_for(ConnectionLost), log.wait_for(ConnectionRestored)
        assert lost.where == back.where == store.name
        assert lost.error
        assert back.seconds >= 0
        assert len(log.of(ConnectionLost)) == 1
    finally:
        store.close()


def end_connection(url: str, session: PostgresSession | None) -> None:
    """End one connection of a store. The others stay."""
    assert session is not None
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 60000)", (session.connection.info.backend_pid,))


PUSH = Push(queue="q", messages=[NewMessage(b"1")])


def lost_and_restored(log: EventLog) -> list[type]:
    return [type(event) for event in log.events if isinstance(event, ConnectionLost | ConnectionRestored)]


def test_each_broken_connection_of_a_store_is_heard(pg_url_factory: Callable[[], str]) -> None:
    url = pg_url_factory()
    store = PostgresStore(f"{url}?shards=1" if "?" not in url else f"{url}&shards=1")
    try:
        store.transact([PUSH])
        store.ask(ListQueues())
        with EventLog(store.events) as log:
            end_connection(url, store._writers[0]._session)
            store.transact([PUSH])
            assert lost_and_restored(log) == [ConnectionLost, ConnectionRestored]
        with EventLog(store.events) as log:
            end_connection(url, store._readers._free[0])
            store.ask(ListQueues())
            assert lost_and_restored(log) == [ConnectionLost, ConnectionRestored]
        with EventLog(store.events) as log:
            prepared = store.prepare([PUSH])
            end_connection(url, store._writers[0]._session)
            with pytest.raises(OutcomeUnknown):
                prepared.commit()
            assert lost_and_restored(log) == [ConnectionLost]
            store.transact([PUSH])
            assert lost_and_restored(log) == [ConnectionLost, ConnectionRestored]
    finally:
        store.close()


def test_start_migration_and_stop_are_heard_on_postgresql(pg_url_factory: Callable[[], str]) -> None:
    url, stream = pg_url_factory(), EventStream()
    with EventLog(stream) as log:
        store = PostgresStore(url, instance="one", events=stream)
        Broker(store, background=False).close()
        PostgresStore(url, events=stream).close()
    life = [event for event in log.events if isinstance(event, StoreMigrated | BrokerStarted | BrokerStopped)]
    assert life == [
        StoreMigrated(store.name, 0, SCHEMA_VERSION),
        BrokerStarted("one", store.name),
        BrokerStopped("one"),
    ]
