"""A database that fails: each failure has its name, changes nothing that it does not say, and is got over."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from ackwise.core.commands import ByLease, Claim, Command, Push, Settle, Settlement
from ackwise.core.errors import (
    BadInput,
    BadStoreURL,
    OutcomeUnknown,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from ackwise.core.queries import GetQueue, ListDead, QueueStats
from ackwise.core.settlement import Outcome
from ackwise.engine import runner
from ackwise.engine.turn import Turn
from ackwise.store.postgres import PostgresStore
from tests.postgres.conftest import Opener, Raw
from tests.postgres.support import claim, kill_all, push, text


def test_connection_that_dies_while_idle_is_replaced(opened: Opener, raw: Raw) -> None:
    store = opened()
    push(store, text("x"))
    store.ask(GetQueue(queue="q"))
    kill_all(raw)
    assert push(store, text("y"))[0].seq == 1
    assert store.ask(GetQueue(queue="q")).name == "q"


def test_turn_that_loses_its_connection_before_the_commit(opened: Opener, raw: Raw) -> None:
    store = opened()
    push(store, text("x"))
    prepared = store.prepare([Push(queue="q", messages=[text("y", transaction_id="t")])])
    kill_all(raw)
    with pytest.raises(OutcomeUnknown, match="may or may not"):
        prepared.commit()
    assert push(store, text("y", transaction_id="t"))[0].status == "queued"


def test_turn_that_loses_its_connection_in_the_middle(
    opened: Opener, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    push(store, text("x"))
    run = runner.run

    def run_and_kill(turn: Turn, commands: Sequence[Command]) -> list[object]:
        results = run(turn, commands)
        kill_all(raw)
        return results

    monkeypatch.setattr(runner, "run", run_and_kill)
    monkeypatch.setattr("ackwise.store.postgres.dedupe.TableDedupe.write", lambda dedupe, _: dedupe.find([1]))
    with pytest.raises(StoreUnavailable, match="nothing was changed"):
        store.transact([Push(queue="q", messages=[text("y")]), Push(queue="q", messages=[text("z")])])
    monkeypatch.undo()
    assert push(store, text("y"))[0].seq == 1


def fail_inserts(raw: Raw, table: str, state: str) -> None:
    with raw() as connection:
        connection.execute(
            f"CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '{state}'; END $$".encode()
        )
        connection.execute(f"CREATE TRIGGER fail BEFORE INSERT ON {table} EXECUTE FUNCTION fail()".encode())


def test_full_disk_refuses_the_push_and_keeps_the_ack(opened: Opener, raw: Raw) -> None:
    store = opened()
    push(store, text("x"))
    held = claim(store, Claim(queue="q"))
    fail_inserts(raw, "segment", "53100")
    ack = Settle(entries=[Settlement(selector=ByLease(held.lease_id), outcome=Outcome.ACK)])
    refused, acked = store.transact([Push(queue="q", messages=[text("y", transaction_id="t")]), ack])
    assert isinstance(refused, StoreFull)
    assert acked[0].count == 1
    with raw() as connection:
        connection.execute("DROP TRIGGER fail ON segment")
    assert push(store, text("y", transaction_id="t"))[0].seq == 1


def test_database_that_is_read_only(url: str, opened: Opener, raw: Raw) -> None:
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    store = opened()
    push(store, text("x"))
    with raw() as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
    try:
        other = opened()
        with pytest.raises(StoreReadOnly):
            push(other, text("y"))
        assert other.ask(QueueStats(queue="q")).messages == 1
    finally:
        with psycopg.connect(url, options="-c default_transaction_read_only=off") as connection:
            connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())


def test_text_that_postgresql_cannot_store_is_the_callers_fault(opened: Opener) -> None:
    store = opened()
    push(store, text("x"))
    for bad in ("nul\0", "\ud800"):
        with pytest.raises(BadInput):
            store.ask(ListDead(group=bad))
    held = claim(store, Claim(queue="q"))
    entry = Settlement(selector=ByLease(held.lease_id), outcome=Outcome.REJECT, error="a\0b\ud800", error_type="\0")
    store.transact([Settle(entries=[entry])])
    assert store.ask(ListDead(queue="q")).letters[0].error == "a\ufffdb?"


def test_unreachable_server_is_an_error() -> None:
    with pytest.raises(StoreUnavailable, match="is it running") as caught:
        PostgresStore("postgresql://me:secret@127.0.0.1:1/ackwise?connect_timeout=2")
    assert "127.0.0.1:1/ackwise" in caught.value.message
    assert "secret" not in caught.value.message


def test_database_that_is_not_there(url: str) -> None:
    old = str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])
    with pytest.raises(StoreUnavailable, match="createdb nowhere"):
        PostgresStore(url.replace(old, "nowhere"))


def test_url_that_is_not_one() -> None:
    with pytest.raises(BadStoreURL, match="bogus"):
        PostgresStore("postgresql://localhost/x?bogus=1")


def test_closed_store_says_so(opened: Opener, url: str) -> None:
    opened()
    store = PostgresStore(url)
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        push(store, text("x"))
    with pytest.raises(StoreUnavailable, match="closed"):
        store.ask(GetQueue(queue="q"))
