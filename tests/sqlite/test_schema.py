"""Schemas: made, migrated, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import SchemaTooNew, StoreCorrupt
from ackwise.core.queen_queries import GetMaintenance, ListNamedTraces
from ackwise.core.rows import MaintenanceState
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from ackwise.store import letter_kinds
from ackwise.store.sqlite import SQLiteStore
from ackwise.store.sqlite import connection as opening
from ackwise.store.sqlite.views import VIEWS
from tests.sqlite.support import open_store, push, rows

NEW_IN_SIX = (
    *("queue_ns", "queue_task", "queue_max_wait", "queue_noted", "queue_dedupe"),
    *("lane_queue", "grp_name", "dead_time"),
)
UNDO_SIX = (
    "DROP TABLE dropped",
    *(f"ALTER TABLE cursor DROP COLUMN {name}" for name in ("last_seq", "last_at", "nacked")),
    "ALTER TABLE lane DROP COLUMN largest",
    *(f"DROP INDEX {name}" for name in NEW_IN_SIX),
    "DROP INDEX scheduled_queue",
    "CREATE INDEX scheduled_queue ON scheduled (queue)",
)

UNDO_TEN = (
    *("DROP INDEX dead_kind", "ALTER TABLE dead DROP COLUMN kind", "DROP TABLE pipeline"),
    *("DROP INDEX ledger_minute", "CREATE INDEX ledger_minute ON ledger (minute)"),
)
UNDO_NINE = (
    *UNDO_TEN,
    *(f"DROP VIEW {name}" for name in VIEWS),
    "DROP INDEX dead_mark",
    "ALTER TABLE dead DROP COLUMN mark",
    "DROP TABLE hook",
    *(f"DROP TABLE {name}" for name in ("trace", "trace_name", "trace_pruned", "maintenance", "spool")),
)
UNDO_EIGHT = (*UNDO_NINE, "DROP TABLE anchor")
UNDO_SEVEN = (*UNDO_EIGHT, "ALTER TABLE span ADD COLUMN last_owner TEXT")


def version(path: Path) -> Any:
    return rows(path, "PRAGMA user_version")[0][0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queues.db"


@pytest.fixture
def next_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this were the release after this one."""
    here = opening.SCHEMA_VERSION
    original = opening._apply

    def apply(connection: apsw.Connection, file: str) -> None:
        if file == f"schema_{here + 1:04d}.sql":
            connection.execute("CREATE TABLE brand_new (id INTEGER PRIMARY KEY)").fetchall()
        else:
            original(connection, file)

    monkeypatch.setattr(opening, "SCHEMA_VERSION", here + 1)
    monkeypatch.setattr(opening, "_apply", apply)


def test_new_file_gets_the_schema_and_our_mark(path: Path) -> None:
    open_store(path).close()
    assert version(path) == opening.SCHEMA_VERSION
    assert rows(path, "PRAGMA application_id") == [(opening._APPLICATION_ID,)]


@pytest.mark.parametrize("content", [b"", None], ids=["empty file", "empty database"])
def test_schema_zero_is_migrated(path: Path, content: bytes | None) -> None:
    if content is None:
        rows(path, "PRAGMA user_version = 0")
        rows(path, "VACUUM")
    else:
        path.write_bytes(content)
    store = open_store(path)
    assert push(store, "a") == ["queued"]
    store.close()
    assert version(path) == opening.SCHEMA_VERSION


def test_older_schema_is_migrated_and_keeps_its_data(path: Path, request: pytest.FixtureRequest) -> None:
    old = open_store(path)
    push(old, "a", "b")
    old.close()
    request.getfixturevalue("next_schema")
    new = open_store(path)
    assert version(path) == opening.SCHEMA_VERSION
    assert rows(path, "SELECT count(*) FROM brand_new") == [(0,)]
    assert push(new, "a", "c") == ["duplicate", "queued"]
    assert new.ask(q.QueueStats(queue="q")).messages == 3
    new.close()


def test_file_of_schema_one_goes_on_where_it_was(path: Path) -> None:
    old = open_store(path)
    push(old, "a", "b")
    (claimed,) = old.transact([c.Claim(queue="q")])
    old.close()
    graph = rows(path, "SELECT type, name FROM sqlite_schema WHERE name LIKE 'mew@_%' ESCAPE '@' AND type <> 'index'")
    for undo in (
        *(f"DROP {kind} {name}" for kind, name in sorted(graph, reverse=True)),
        *UNDO_SEVEN,
        *UNDO_SIX,
        "ALTER TABLE cursor DROP COLUMN settled_at",
        "ALTER TABLE lease DROP COLUMN yields",
        "ALTER TABLE lease DROP COLUMN returned",
        "ALTER TABLE lease DROP COLUMN dropped",
        "DROP INDEX dead_message",
        "ALTER TABLE grp DROP COLUMN expired_leases",
        "PRAGMA user_version = 1",
    ):
        rows(path, undo)
    new = open_store(path)
    assert version(path) == opening.SCHEMA_VERSION
    assert rows(path, "SELECT largest = (SELECT max(length(body)) FROM segment) FROM lane") == [(1,)]
    entry = c.Settlement(selector=c.ByLease(claimed.lease_id), outcome=Outcome.ACK)
    ((settled,),) = new.transact([c.Settle(entries=[entry])])
    assert settled.verdict == "acked"
    assert new.audit() == []
    new.close()


def test_file_of_schema_five_gets_the_indexes_of_six(path: Path) -> None:
    old = open_store(path)
    push(old, "a", "b")
    old.close()
    for undo in (*UNDO_SEVEN, *UNDO_SIX, "PRAGMA user_version = 5"):
        rows(path, undo)
    new = open_store(path)
    indexes = {name for (name,) in rows(path, "SELECT name FROM sqlite_schema WHERE type = 'index'")}
    assert indexes.issuperset(NEW_IN_SIX)
    assert [row.info.name for row in new.ask(q.ListStats())] == ["q"]
    assert push(new, "a", "c") == ["duplicate", "queued"]
    new.close()


def test_file_of_schema_six_loses_last_owner_only(path: Path) -> None:
    old = open_store(path)
    push(old, "a", "b")
    (claimed,) = old.transact([c.Claim(queue="q")])
    old.close()
    columns = rows(path, "SELECT name FROM pragma_table_info('span') ORDER BY name")
    spans = rows(path, "SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, probation, history FROM span")
    for undo in (*UNDO_SEVEN, "UPDATE span SET last_owner = 'me'", "PRAGMA user_version = 6"):
        rows(path, undo)
    new = open_store(path)
    assert version(path) == opening.SCHEMA_VERSION
    assert rows(path, "SELECT name FROM pragma_table_info('span') ORDER BY name") == columns
    assert rows(path, "SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, probation, history FROM span") == spans
    entry = c.Settlement(selector=c.ByLease(claimed.lease_id), outcome=Outcome.ACK)
    ((settled,),) = new.transact([c.Settle(entries=[entry])])
    assert settled.verdict == "acked"
    assert new.audit() == []
    new.close()


def test_file_of_schema_seven_keeps_its_leases(path: Path) -> None:
    old = SQLiteStore(f"sqlite:///{path}")
    push(old, "a", "b")
    (claimed,) = old.transact([c.Claim(queue="q", most=1, lease=60 * MICROS)])
    before = old.ask(q.ListLeases())
    old.close()
    for undo in (*UNDO_EIGHT, "PRAGMA user_version = 7"):
        rows(path, undo)
    new = SQLiteStore(f"sqlite:///{path}")
    assert version(path) == opening.SCHEMA_VERSION
    assert rows(path, "SELECT shift FROM anchor") == [(0,)]
    assert new.ask(q.ListLeases()) == before
    (empty,) = new.transact([c.Claim(queue="q", partitions=("Default",), exclusivity="partition")])
    assert (empty.empty, empty.until) == ("locked", claimed.deadline)
    entry = c.Settlement(selector=c.ByLease(claimed.lease_id), outcome=Outcome.ACK)
    ((settled,),) = new.transact([c.Settle(entries=[entry])])
    assert settled.verdict == "acked"
    assert new.audit() == []
    new.close()


def test_file_of_schema_eight_gets_views_traces_and_a_spool(path: Path) -> None:
    old = open_store(path)
    push(old, "a", "b")
    old.close()
    for undo in (*UNDO_NINE, "PRAGMA user_version = 8"):
        rows(path, undo)
    new = open_store(path)
    assert version(path) == opening.SCHEMA_VERSION
    assert push(new, "a", "c") == ["duplicate", "queued"]
    partition = new.ask(q.ListPartitions(queue="q"))[0].partition_id
    (added,) = new.transact([c.AddTrace(partition_id=partition, transaction_id="a", data="1", names=["n"])])
    (trace,) = new.ask(ListNamedTraces(name="n"))
    assert trace.id == added.trace_id
    (switched,) = new.transact([c.SetMaintenance(push=True)])
    assert new.ask(GetMaintenance()) == MaintenanceState(push=switched.push, pop=False, waiting=False)
    assert rows(path, "SELECT queue, messages FROM ackwise_queues") == [("q", 3)]
    assert {name for (name,) in rows(path, "SELECT name FROM sqlite_schema WHERE type = 'view'")} >= set(VIEWS)
    assert new.audit() == []
    new.close()


def test_file_of_schema_nine_gets_the_kinds_of_its_letters(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = open_store(path)
    errors = ["order 17 not found", "order 18 not found", "", "'amount'", "timeout"]
    push(old, *(str(number) for number in range(len(errors))))
    (claimed,) = old.transact([c.Claim(queue="q", most=10)])
    entries = [
        c.Settlement(
            selector=c.ByRange(claimed.lease_id, claimed.grants[0].lane, seq, seq + 1),
            outcome=Outcome.REJECT,
            error=error,
        )
        for seq, error in enumerate(errors)
    ]
    old.transact([c.Settle(entries=entries)])
    letters = old.ask(q.ListDead(queue="q")).letters
    old.close()
    for undo in (*UNDO_TEN, "PRAGMA user_version = 9"):
        rows(path, undo)
    monkeypatch.setattr(letter_kinds, "CHUNK", 2)
    new = open_store(path)
    assert version(path) == opening.SCHEMA_VERSION
    assert new.ask(q.ListDead(queue="q")).letters == letters
    assert rows(path, "SELECT kind FROM dead ORDER BY seq") == [
        ("order <n> not found",), ("order <n> not found",), ("",), ("'amount'",), ("timeout",)
    ]  # fmt: skip
    assert rows(path, "SELECT count(*) FROM pipeline") == [(0,)]
    assert new.audit() == []
    new.close()


def test_migration_that_fails_leaves_the_old_schema(
    path: Path, next_schema: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "SCHEMA_VERSION", opening.SCHEMA_VERSION - 1)
    open_store(path).close()
    before = version(path)
    monkeypatch.setattr(opening, "SCHEMA_VERSION", opening.SCHEMA_VERSION + 1)

    def broken(connection: apsw.Connection, _: str) -> None:
        connection.execute("CREATE TABLE half_way (id INTEGER)").fetchall()
        raise RuntimeError("power cut")

    monkeypatch.setattr(opening, "_apply", broken)
    with pytest.raises(RuntimeError, match="power cut"):
        open_store(path)
    assert version(path) == before
    assert rows(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'half_way'") == [(0,)]


def test_newer_schema_is_refused_with_what_to_do(path: Path) -> None:
    open_store(path).close()
    rows(path, f"PRAGMA user_version = {opening.SCHEMA_VERSION + 1}")
    with pytest.raises(SchemaTooNew, match=rf"has schema {opening.SCHEMA_VERSION + 1}.*upgrade"):
        open_store(path)
    assert version(path) == opening.SCHEMA_VERSION + 1


@pytest.mark.parametrize("their_version", [0, 1, 7])
def test_foreign_database_is_refused_and_unchanged(path: Path, their_version: int) -> None:
    rows(path, "CREATE TABLE theirs (id INTEGER)")
    rows(path, f"PRAGMA user_version = {their_version}")
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match="not one of Ackwise"):
        open_store(path)
    assert path.read_bytes() == before
