"""Opening a database: made once, brought up to date, or refused."""

from __future__ import annotations

import psycopg
import pytest

from ackwise.core.commands import AddTrace, ByLease, ByRange, Claim, SetMaintenance, Settle, Settlement
from ackwise.core.errors import SchemaTooNew, StoreCorrupt
from ackwise.core.queen_queries import GetMaintenance, ListNamedTraces
from ackwise.core.queries import ListDead, ListLeases, ListPartitions, ListQueues
from ackwise.core.rows import MaintenanceState
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from ackwise.store import letter_kinds
from ackwise.store.postgres import PostgresStore, schema
from ackwise.store.postgres.vacuum import vacuum
from ackwise.store.postgres.views import VIEWS
from ackwise.wire.store_url import parse
from tests.postgres.conftest import Opener, Raw
from tests.postgres.support import push, text, together

_NEW_IN_SIX = (
    *("queue_ns", "queue_task", "queue_max_wait", "queue_noted", "queue_dedupe"),
    *("lane_queue", "grp_name", "dead_time"),
)
_NEW_IN_NINE = "trace, trace_name, trace_pruned, maintenance, spool"


def undo_ten(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Removes what schema 10 adds."""
    connection.execute("ALTER TABLE dead DROP COLUMN kind")
    connection.execute("DROP TABLE pipeline")


def undo_nine(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Removes what schema 9 and later ones add."""
    undo_ten(connection)
    for name in reversed(VIEWS):
        connection.execute(f"DROP VIEW public.{name}, ackwise.{name}".encode())
    functions = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname LIKE 'view@_%' ESCAPE '@'"
    for (function,) in connection.execute(functions).fetchall():
        connection.execute(f"DROP FUNCTION IF EXISTS {function} CASCADE".encode())
    for undo in (
        "DROP INDEX part_as_uuid",
        "ALTER TABLE dead DROP COLUMN mark",
        "DROP TABLE hook",
        f"DROP TABLE {_NEW_IN_NINE}",
    ):
        connection.execute(undo.encode())


def test_many_brokers_open_an_empty_database_at_once(url: str, opened: Opener) -> None:
    def work(_: int) -> None:
        PostgresStore(url).close()

    together(8, work)
    push(opened(), text("x"))


def test_newer_schema_is_refused(url: str, opened: Opener, raw: Raw) -> None:
    opened()
    with raw() as connection:
        connection.execute("UPDATE meta SET value = '999' WHERE key = 'schema'")
    with pytest.raises(SchemaTooNew, match="schema 999"):
        PostgresStore(url)


def test_older_schema_is_brought_up_to_date(
    url: str, opened: Opener, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(opened(), text("x"))
    following = schema.SCHEMA_VERSION + 1
    monkeypatch.setattr(schema, "SCHEMA_VERSION", following)
    monkeypatch.setattr(schema, "script", lambda number: f"CREATE TABLE new_in_{number} (x bigint)".encode())
    store = opened()
    assert [queue.name for queue in store.ask(ListQueues())] == ["q"]
    with raw() as connection:
        assert connection.execute(f"SELECT count(*) FROM new_in_{following}".encode()).fetchone() == (0,)
        assert connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone() == (str(following),)


def test_database_of_schema_one_goes_on_where_it_was(url: str, opened: Opener, raw: Raw) -> None:
    push(opened(), text("x"))
    with raw() as connection:
        undo_nine(connection)
        graph = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'mew@_%' ESCAPE '@'"
        for (name,) in connection.execute(graph).fetchall():
            connection.execute(f"DROP TABLE {name} CASCADE".encode())
        connection.execute("DROP TABLE dropped")
        connection.execute("DROP TABLE anchor")
        connection.execute("ALTER TABLE span ADD COLUMN last_owner text")
        for column in ("settled_at", "last_seq", "last_at", "nacked"):
            connection.execute(f"ALTER TABLE cursor DROP COLUMN {column}".encode())
        for column in ("yields", "returned", "dropped"):
            connection.execute(f"ALTER TABLE lease DROP COLUMN {column}".encode())
        connection.execute("ALTER TABLE lane DROP COLUMN largest")
        connection.execute("DROP INDEX dead_message")
        for name in (*_NEW_IN_SIX, "scheduled_queue"):
            connection.execute(f"DROP INDEX {name}".encode())
        connection.execute("CREATE INDEX scheduled_queue ON scheduled (queue)")
        connection.execute("ALTER TABLE grp DROP COLUMN expired_leases")
        connection.execute("UPDATE meta SET value = '1' WHERE key = 'schema'")
    store = opened()
    with raw() as connection:
        sizes = connection.execute("SELECT largest, (SELECT max(length(body)) FROM segment) FROM lane").fetchone()
    assert sizes is not None
    assert sizes[0] == sizes[1]
    (claimed,) = store.transact([Claim(queue="q")])
    assert claimed.count == 1
    assert store.audit() == []


def test_database_of_schema_six_loses_last_owner_only(opened: Opener, raw: Raw) -> None:
    old = opened()
    push(old, text("x"))
    (claimed,) = old.transact([Claim(queue="q")])
    with raw() as connection:
        spans = connection.execute("SELECT * FROM span").fetchall()
        connection.execute("ALTER TABLE span ADD COLUMN last_owner text")
        connection.execute("UPDATE span SET last_owner = 'me'")
        undo_nine(connection)
        connection.execute("DROP TABLE anchor")
        connection.execute("UPDATE meta SET value = '6' WHERE key = 'schema'")
    store = opened()
    with raw() as connection:
        assert connection.execute("SELECT * FROM span").fetchall() == spans
        version = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    assert version == (str(schema.SCHEMA_VERSION),)
    entry = Settlement(selector=ByLease(claimed.lease_id), outcome=Outcome.ACK)
    ((settled,),) = store.transact([Settle(entries=[entry])])
    assert settled.verdict == "acked"
    assert store.audit() == []


def test_database_of_schema_seven_keeps_its_leases(opened: Opener, raw: Raw) -> None:
    old = opened()
    push(old, text("x"))
    (claimed,) = old.transact([Claim(queue="q", lease=60 * MICROS)])
    before = old.ask(ListLeases())
    with raw() as connection:
        undo_nine(connection)
        connection.execute("DROP TABLE anchor")
        connection.execute("UPDATE meta SET value = '7' WHERE key = 'schema'")
    store = opened()
    with raw() as connection:
        assert connection.execute("SELECT shift, steps FROM anchor").fetchall() == [(0, 0)]
    assert store.ask(ListLeases()) == before
    entry = Settlement(selector=ByLease(claimed.lease_id), outcome=Outcome.ACK)
    ((settled,),) = store.transact([Settle(entries=[entry])])
    assert settled.verdict == "acked"


def test_database_of_schema_eight_gets_traces_and_a_spool(opened: Opener, raw: Raw) -> None:
    push(opened(), text("x"))
    with raw() as connection:
        undo_nine(connection)
        connection.execute("UPDATE meta SET value = '8' WHERE key = 'schema'")
    store = opened()
    partition = store.ask(ListPartitions(queue="q"))[0].partition_id
    (added,) = store.transact([AddTrace(partition_id=partition, transaction_id="a", data="1", names=["n"])])
    (trace,) = store.ask(ListNamedTraces(name="n"))
    assert trace.id == added.trace_id
    (switched,) = store.transact([SetMaintenance(push=True)])
    assert store.ask(GetMaintenance()) == MaintenanceState(push=switched.push, pop=False, waiting=False)
    assert store.audit() == []


def test_database_of_schema_eight_gets_the_views(opened: Opener, raw: Raw) -> None:
    push(opened(), text("x"), text("y"))
    with raw() as connection:
        undo_nine(connection)
        connection.execute("UPDATE meta SET value = '8' WHERE key = 'schema'")
    assert opened().notes() == []
    with raw() as connection:
        assert connection.execute("SELECT queue, messages FROM public.ackwise_queues").fetchall() == [("q", 2)]
        payloads = connection.execute("SELECT payload FROM public.ackwise_messages ORDER BY seq").fetchall()
    assert payloads == [(b"x",), (b"y",)]


def test_database_of_schema_nine_gets_the_kinds_of_its_letters(
    opened: Opener, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened()
    errors = ["order 17 not found", "order 18 not found", "", "'amount'", "timeout"]
    push(old, *(text(str(number)) for number in range(len(errors))))
    (claimed,) = old.transact([Claim(queue="q", most=10)])
    ranges = [ByRange(claimed.lease_id, claimed.grants[0].lane, seq, seq + 1) for seq in range(len(errors))]
    entries = [
        Settlement(selector=place, outcome=Outcome.REJECT, error=error)
        for place, error in zip(ranges, errors, strict=True)
    ]
    old.transact([Settle(entries=entries)])
    letters = old.ask(ListDead(queue="q")).letters
    with raw() as connection:
        undo_ten(connection)
        connection.execute("UPDATE meta SET value = '9' WHERE key = 'schema'")
    monkeypatch.setattr(letter_kinds, "CHUNK", 2)
    store = opened()
    assert store.ask(ListDead(queue="q")).letters == letters
    with raw() as connection:
        kinds = connection.execute("SELECT kind FROM dead ORDER BY seq").fetchall()
        assert connection.execute("SELECT count(*) FROM pipeline").fetchone() == (0,)
    assert kinds == [("order <n> not found",), ("order <n> not found",), ("",), ("'amount'",), ("timeout",)]
    assert store.audit() == []


def test_foreign_schema_is_left_alone(url: str, raw: Raw) -> None:
    with raw() as connection:
        connection.execute("CREATE SCHEMA ackwise")
        connection.execute("CREATE TABLE ackwise.theirs (x bigint)")
    with pytest.raises(StoreCorrupt, match="of another program"):
        PostgresStore(url)


def test_vacuum_beside_a_server_keeps_everything(url: str, opened: Opener) -> None:
    store = opened()
    push(store, text("x"))
    done = vacuum(parse(url))
    assert done.before > 0
    assert done.after > 0
    (claimed,) = store.transact([Claim(queue="q")])
    assert claimed.count == 1
