"""A server of our own to be restarted and mistuned."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest

from ackwise.core.commands import Claim
from ackwise.core.errors import StoreUnavailable, UnsafeStore
from ackwise.core.queries import QueueStats
from ackwise.store.postgres import PostgresStore
from tests.patience import PATIENCE
from tests.pg import OwnServer
from tests.postgres.support import claim, push, text


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    own = OwnServer(f"{os.getpid()}-restarts")
    own.start()
    yield own
    own.cleanup()


@pytest.fixture
def url(server: OwnServer) -> str:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute("DROP SCHEMA IF EXISTS ackwise CASCADE")
    return server.url()


def test_store_recovers_when_the_server_comes_back(server: OwnServer, url: str) -> None:
    store, other = PostgresStore(url), PostgresStore(url)
    push(store, text("1"))
    assert store.listening(PATIENCE)
    server.pause()
    with pytest.raises(StoreUnavailable, match="is it running"):
        push(store, text("lost"))
    with pytest.raises(StoreUnavailable):
        store.ask(QueueStats(queue="q"))
    server.resume()
    assert push(store, text("2"))[0].seq == 1
    assert claim(other, Claim(queue="q", most=9)).count == 2
    assert store.ask(QueueStats(queue="q")).messages == 2
    assert store.listening(PATIENCE)
    assert store.audit() == []
    for one in (store, other):
        one.close()


def test_restart_between_two_calls_is_not_noticed(server: OwnServer, url: str) -> None:
    store = PostgresStore(url)
    push(store, text("1"))
    server.restart()
    assert push(store, text("2"))[0].seq == 1
    store.close()


def test_server_without_fsync_is_refused_unless_asked_for(server: OwnServer, url: str) -> None:
    set_fsync(server, "off")
    try:
        with pytest.raises(UnsafeStore, match="durability=normal"):
            PostgresStore(url)
        store = PostgresStore(f"{url}&durability=normal")
        push(store, text("x"))
        store.close()
    finally:
        set_fsync(server, "on")


def set_fsync(server: OwnServer, value: str) -> None:
    """The postmaster reads its files again on reload; what counts for us is what a new connection sees."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET fsync = {value}".encode())
    server.restart()


@pytest.mark.parametrize(("durability", "expected"), [("full", "on"), ("normal", "off")])
def test_commits_wait_for_the_disk_whatever_the_server_says(url: str, durability: str, expected: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER DATABASE postgres SET synchronous_commit = off")
    store = PostgresStore(f"{url}&durability={durability}")
    try:
        push(store, text("x"))
        assert settings_of(store)["synchronous_commit"] == expected
    finally:
        store.close()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER DATABASE postgres RESET synchronous_commit")


def settings_of(store: PostgresStore) -> dict[str, str]:
    """What the store's own writing connection has set."""
    session = store._writers[0]._session
    assert session is not None
    return dict(session.connection.execute("SELECT name, setting FROM pg_settings").fetchall())


def test_wrong_password_is_said_without_the_password(server: OwnServer, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET client_min_messages = error")
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute("CREATE ROLE guest LOGIN PASSWORD 'right'")
    rules = server.pgdata / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("local all guest scram-sha-256\n" + before)
    server.control("reload")
    try:
        with pytest.raises(StoreUnavailable, match="refused user 'guest'") as caught:
            PostgresStore(url.replace("postgres@", "guest:wr0ng@"))
        assert "wr0ng" not in caught.value.message
    finally:
        rules.write_text(before)
        server.control("reload")


def test_user_without_schema_rights_is_told_what_to_grant(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET client_min_messages = error")
        connection.execute("DROP ROLE IF EXISTS visitor")
        connection.execute("CREATE ROLE visitor LOGIN")
    with pytest.raises(Exception, match="grant it CREATE"):
        PostgresStore(url.replace("postgres@", "visitor@"))
