"""Events of connections to PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from ackwise.core.events import ConnectionLost, ConnectionRestored
from ackwise.store.postgres import PostgresStore
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
