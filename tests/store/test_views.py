"""The SQL views: they say what the queries say, are read-only and use the indexes."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import apsw
import psycopg
import pytest

from ackwise import QueuePolicy, connect
from ackwise.client import Connection
from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.core.commands import Sweep
from ackwise.core.queries import GetQueue, ListGroups, ListPlaces, Query, QueueStats
from ackwise.core.rows import Place
from tests.pg import FACTORIES
from tests.query_plans import BIG

VIEWS = (
    *("ackwise_queues", "ackwise_groups", "ackwise_leases", "ackwise_dead_letters"),
    *("partition_consumers", "dead_letter_queue"),
)
ALL = (*VIEWS, "ackwise_messages")
"""The views of PostgreSQL."""
LIVE_LEASE = """
   SELECT 1 FROM partition_consumers
   WHERE partition_id = $partition_id
     AND worker_id = $lease_id
     AND lease_expires_at > NOW()
"""
VALID_LEASE = """
SELECT 1 FROM partition_consumers pc
WHERE pc.partition_id = $partition_id
  AND pc.worker_id = $lease_id
  AND pc.lease_expires_at > NOW()
"""
QUEEN_CONSUMERS = (
    *("partition_id", "consumer_group", "last_consumed_id", "last_consumed_created_at", "last_consumed_at"),
    *("total_messages_consumed", "lease_acquired_at", "lease_expires_at", "worker_id", "batch_size", "acked_count"),
)
QUEEN_DEAD = (
    *("id", "message_id", "partition_id", "transaction_id", "consumer_group", "error_message", "retry_count"),
    *("original_created_at", "moved_to_dlq_at"),
)
T = TypeVar("T")
EPOCH = datetime.fromtimestamp(0, UTC)
Read = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(params=["sqlite", *FACTORIES])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/queue.db?durability=normal"
    made: str = request.getfixturevalue(request.param)()
    return made


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


def file_of(url: str) -> str:
    return url.removeprefix("sqlite:///").partition("?")[0]


@pytest.fixture
def queue(url: str) -> Iterator[Connection]:
    with connect(url) as connection:
        yield connection


@pytest.fixture
def read(url: str) -> Read:
    """Runs a statement as a plain client of the database and returns rows with plain values."""

    def run(statement: str) -> list[dict[str, Any]]:
        if is_sqlite(url):
            with closing(apsw.Connection(file_of(url))) as database:
                cursor = database.execute(statement)
                return [
                    dict(zip([column[0] for column in cursor.get_description()], row, strict=True)) for row in cursor
                ]
        with psycopg.connect(url) as connection:
            result = connection.execute(statement.encode())
            assert result.description is not None
            names = [column.name for column in result.description]
            return [dict(zip(names, map(plain, row), strict=True)) for row in result]

    return run


def plain(value: object) -> object:
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"
    return value if value is None or isinstance(value, int | str | bytes | dict) else str(value)


def shown(instant: int | datetime | None) -> object:
    return plain(EPOCH + instant * datetime.resolution if isinstance(instant, int) else instant)


@pytest.fixture
def lease_id(queue: Connection) -> str:
    """Messages in every state. Returns the id of a live lease with three messages of `eu`; one of them is acked."""
    queue.create_queue("orders", QueuePolicy(exclusivity="partition", retry_limit=1))
    for number in range(6):
        headers = {"n": str(number)} if number % 2 else None
        queue.push("orders", {"n": number}, partition="eu", transaction_id=f"tx-{number}", headers=headers)
    queue.push_many("orders", [{"n": 10}, {"n": 11}, {"n": 12}], partition="us")
    queue.push("orders", b"\x00\xff", partition="us", content_type="image/png")
    queue.push("orders", {"later": 1}, delay=3600)
    queue.push("other", {"n": 1})
    first = queue.claim("orders", group="workers", partitions="eu", max=2)
    first[0].ack()
    first[1].reject("no stock")
    us = queue.claim("orders", group="audit", partitions="us", max=3)
    us[0].ack()
    us[1].ack()
    us[2].release()
    held = queue.claim("orders", group="workers", partitions="eu", max=3, lease=600)
    held[0].ack()
    return held.lease_id


def ask(url: str, query: Query[T]) -> T:
    with closing(open_store(url)) as store:
        return store.ask(query)


def places(url: str) -> list[Place]:
    return list(ask(url, ListPlaces(last_done=True)))


def test_queues_view_agrees_with_stats(url: str, queue: Connection, lease_id: str, read: Read) -> None:
    rows = {row["queue"]: row for row in read("SELECT * FROM ackwise_queues")}
    assert set(rows) == {"orders", "other"}
    for name, row in rows.items():
        stats, info = ask(url, QueueStats(queue=name)), ask(url, GetQueue(queue=name))
        counts = (stats.partitions, stats.messages, stats.scheduled, stats.dead, len(stats.groups))
        assert (
            tuple(row[column] for column in ("partitions", "messages", "scheduled", "dead_letters", "consumer_groups"))
            == counts
        )
        assert row["created_at"] == shown(info.created_at)
        assert not row["paused"]
    assert rows["orders"]["oldest_message_at"] is not None


def test_groups_view_agrees_with_groups(url: str, lease_id: str, read: Read) -> None:
    rows = read("SELECT * FROM ackwise_groups WHERE queue = 'orders' ORDER BY consumer_group")
    stats = sorted(ask(url, ListGroups(queue="orders")), key=lambda group: group.group)
    assert [row["consumer_group"] for row in rows] == [group.group for group in stats] == ["audit", "workers"]
    same = ("acked", "dead", "skipped", "expired", "held", "leased", "unread", "lag", "leases", "partitions")
    for row, group in zip(rows, stats, strict=True):
        assert {name: row[name] for name in same} == {name: getattr(group, name) for name in same}
        assert row["oldest_unfinished_at"] == shown(group.oldest_unfinished_at)
        assert row["created_at"] == shown(group.created_at)


def test_leases_view_agrees_with_leases(queue: Connection, lease_id: str, read: Read) -> None:
    (row,) = read("SELECT * FROM ackwise_leases WHERE queue = 'orders'")
    (lease,) = queue.leases("orders")
    assert (row["lease_id"], row["owner"], row["held"]) == (lease_id, lease.owner, lease.held)
    assert (row["consumer_group"], row["granted"], row["held"]) == ("workers", 3, 2)
    assert (row["acquired_at"], row["expires_at"]) == (shown(lease.made_at), shown(lease.deadline))


def test_dead_letters_view_agrees_with_letters(queue: Connection, lease_id: str, read: Read) -> None:
    (row,) = read("SELECT * FROM ackwise_dead_letters WHERE queue = 'orders'")
    (letter,) = queue.dead_letters("orders")
    same = ("queue", "partition", "partition_id", "seq", "message_id", "transaction_id", "reason", "error")
    assert {name: row[name] for name in same} == {name: getattr(letter, name) for name in same}
    assert (row["dead_letter_id"], row["consumer_group"]) == (letter.id, letter.group)
    assert (row["failures"], row["deliveries"]) == (letter.failures, letter.deliveries)
    assert (row["created_at"], row["dead_at"]) == (shown(letter.created_at), shown(letter.dead_at))


def test_dead_letter_queue_has_queens_columns(queue: Connection, lease_id: str, read: Read) -> None:
    (row,) = read("SELECT * FROM dead_letter_queue WHERE transaction_id = 'tx-1'")
    assert tuple(row)[: len(QUEEN_DEAD)] == QUEEN_DEAD
    (letter,) = queue.dead_letters("orders")
    assert (row["id"], row["message_id"], row["error_message"]) == (letter.id, letter.message_id, letter.error)
    assert (row["original_created_at"], row["moved_to_dlq_at"]) == (shown(letter.created_at), shown(letter.dead_at))
    assert read("SELECT count(*) AS n FROM dead_letter_queue WHERE queue_name = 'other'") == [{"n": 0}]


def test_partition_consumers_agrees_with_places(url: str, lease_id: str, read: Read) -> None:
    rows = {(row["queue_name"], row["partition_name"], row["consumer_group"]): row for row in consumers(read)}
    stored = places(url)
    assert set(rows) == {(place.queue, place.partition, place.group) for place in stored}
    for place in stored:
        row = rows[place.queue, place.partition, place.group]
        assert tuple(row)[: len(QUEEN_CONSUMERS)] == QUEEN_CONSUMERS
        assert_same(row, place)
    assert rows["orders", "us", "audit"]["total_messages_consumed"] == 2
    assert rows["orders", "eu", "workers"]["acked_count"] == 1


def consumers(read: Read) -> list[dict[str, Any]]:
    return read("SELECT * FROM partition_consumers")


def assert_same(row: dict[str, Any], place: Place) -> None:
    assert row["partition_id"] == place.partition_id
    assert row["last_consumed_id"] == place.last_settled_id
    assert row["last_consumed_created_at"] == shown(place.last_settled_created_at)
    assert row["last_consumed_at"] == shown(place.last_settled_at)
    assert row["total_messages_consumed"] == place.acked + place.nacked
    lease = place.lease
    assert row["worker_id"] == (lease.lease_id if lease else None)
    assert row["lease_acquired_at"] == (shown(lease.made_at) if lease else None)
    assert row["lease_expires_at"] == (shown(lease.deadline) if lease else None)
    assert (row["batch_size"], row["acked_count"]) == ((lease.granted, lease.settled) if lease else (0, 0))


def test_last_consumed_id_survives_pruning_and_delay(url: str, read: Read) -> None:
    """A pruned message has a husk. A delayed message is stored later than it is created."""
    clock = ManualClock()
    with connect(url, clock=clock) as queue:
        queue.create_queue("done", QueuePolicy(completed_retention_seconds=1))
        queue.push("done", {"n": 1}, delay=5)
        clock.advance(6)
        queue.transport.send(Sweep())
        queue.push_many("done", [{"n": 2}, {"n": 3}])
        queue.claim("done", group="g", max=1)[0].ack()
        (delayed,) = places(url)
        assert_same(consumers(read)[0], delayed)
        assert delayed.last_settled_created_at is not None
        queue.claim("done", group="g", max=2).ack()
        clock.advance(60)
        queue.transport.send(Sweep())
        assert len(queue.browse("done")) == 0
        (pruned,) = places(url)
        assert pruned.last_settled_id is not None
        assert_same(consumers(read)[0], pruned)


def test_seed_selects_find_the_live_lease_only(url: str, queue: Connection, lease_id: str, read: Read) -> None:
    (place,) = (place for place in places(url) if place.lease)

    def select(partition: str, lease: str) -> list[int]:
        found = []
        for statement in (LIVE_LEASE, VALID_LEASE):
            text = statement.replace("$partition_id", f"'{partition}'").replace("$lease_id", f"'{lease}'")
            found.append(len(read(text.replace("NOW()", "CURRENT_TIMESTAMP") if is_sqlite(url) else text)))
        return found

    assert select(place.partition_id, lease_id) == [1, 1]
    assert select(place.partition_id, lease_id + "0") == [0, 0]
    assert select(str(queue.dead_letters("orders")[0].id), lease_id) == [0, 0]
    queue.release(lease_id)
    assert select(place.partition_id, lease_id) == [0, 0]


def test_seed_select_skips_an_expired_lease(url: str, read: Read) -> None:
    """The lease expired in 2023, and no broker has swept it."""
    with connect(url, clock=ManualClock()) as queue:
        queue.push("q", 1)
        batch = queue.claim("q", max=1)
        (row,) = consumers(read)
        assert row["worker_id"] == batch.lease_id
        now = "CURRENT_TIMESTAMP" if is_sqlite(url) else "NOW()"
        assert read(f"SELECT 1 AS found FROM partition_consumers WHERE lease_expires_at > {now}") == []


def test_lease_times_follow_the_wall_clock(url: str, queue: Connection, lease_id: str, read: Read) -> None:
    before = read("SELECT expires_at FROM ackwise_leases")[0]["expires_at"]
    execute(url, "UPDATE {}anchor SET shift = shift + 3600000000", "ackwise.")
    after = read("SELECT expires_at FROM ackwise_leases")[0]["expires_at"]
    assert datetime.fromisoformat(before).timestamp() - datetime.fromisoformat(after).timestamp() == 3600
    assert read("SELECT lease_expires_at FROM partition_consumers WHERE worker_id IS NOT NULL") == [
        {"lease_expires_at": after}
    ]
    execute(url, "UPDATE {}anchor SET shift = shift - 3600000000", "ackwise.")


def execute(url: str, statement: str, prefix: str = "") -> None:
    if is_sqlite(url):
        with closing(apsw.Connection(file_of(url))) as database:
            database.execute(statement.format("")).fetchall()
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.format(prefix).encode())


CHANGES = ("DELETE FROM {}", "UPDATE {} SET {} = 'x'", "INSERT INTO {} ({}) VALUES ('x')")


def test_write_to_a_view_fails(url: str, queue: Connection, lease_id: str) -> None:
    names = VIEWS if is_sqlite(url) else [*ALL, *(f"ackwise.{name}" for name in ALL)]
    for view in names:
        column = "queue" if view.endswith(("_queues", "_messages")) else "consumer_group"
        for change in CHANGES:
            with pytest.raises((apsw.SQLError, psycopg.Error)) as refusal:
                execute(url, change.format(view, column))
            assert isinstance(refusal.value, apsw.SQLError | psycopg.errors.ObjectNotInPrerequisiteState)


def test_filter_by_queue_uses_indexes(url: str, queue: Connection) -> None:
    for view in VIEWS if is_sqlite(url) else ALL:
        column = "queue" if view.startswith("ackwise") else "queue_name"
        plan = explain(url, f"SELECT * FROM {view} WHERE {column} = 'orders'")
        assert scanned(plan) == set(), plan


def test_filter_by_partition_uses_indexes(url: str, queue: Connection) -> None:
    if not is_sqlite(url):
        rows = "SELECT gen_random_uuid(), i % 9, i FROM generate_series(1, 5000) i"
        execute(url, f"INSERT INTO ackwise.part (uuid, queue, name) {rows}; ANALYZE ackwise.part")
    for view in ("partition_consumers", "dead_letter_queue"):
        plan = explain(url, f"SELECT * FROM {view} WHERE partition_id = '019a0000-0000-7000-8000-000000000000'")
        assert scanned(plan) == set(), plan
        assert any("part_as_uuid" in step or "p USING INDEX" in step for step in plan), plan


def explain(url: str, statement: str) -> list[str]:
    if is_sqlite(url):
        with closing(apsw.Connection(file_of(url))) as database:
            return [str(row[3]) for row in database.execute(f"EXPLAIN QUERY PLAN {statement}")]
    with psycopg.connect(url, options="-c enable_seqscan=off -c enable_bitmapscan=off") as connection:
        return [str(row[0]) for row in connection.execute(f"EXPLAIN {statement}".encode())]


def scanned(plan: Sequence[str]) -> set[str]:
    """Tables that a plan reads as a whole."""
    found = set()
    for step in plan:
        words = step.split()
        if words[0] == "SCAN" and len(words) == 2:
            found.add(words[1])
        found |= {table for table in BIG if f"Seq Scan on {table} " in step}
    # SQLite names the aliases. `a` is the table `anchor`, which has one row; the others are a row made of values.
    return found - {"a", "t", "m", "CONSTANT"}


def test_plain_sqlite_reads_every_view(tmp_path: Path) -> None:
    """Python's own SQLite, in another process: two SQLite libraries in one process break each other's locks."""
    path = tmp_path / "queue.db"
    with connect(f"sqlite:///{path}") as queue:
        queue.push_many("q", [1, 2])
        queue.claim("q", max=1)[0].ack()
        rows = "d.execute(f'SELECT * FROM {v}').fetchall()"
        script = f"import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); print([{rows} for v in sys.argv[2:]])"
        result = subprocess.run(
            [sys.executable, "-c", script, str(path), *VIEWS],
            capture_output=True,
            text=True,
            check=True,
        )
        (place,) = places(f"sqlite:///{path}")
    assert place.last_settled_id is not None
    assert place.last_settled_id in result.stdout


def test_foreign_object_stays_and_check_says_so(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A person's own table has the name of a view."""
    connect(url).close()
    execute(url, "DROP VIEW dead_letter_queue")
    execute(url, "CREATE TABLE dead_letter_queue (mine integer)")
    execute(url, "INSERT INTO dead_letter_queue VALUES (7)")
    set_schema(url, 8)
    try:
        with caplog.at_level(logging.WARNING, "ackwise.store"), closing(open_store(url)) as store:
            notes = [note for note in store.notes() if "dead_letter_queue" in note]
        assert len(notes) == 1
        assert "not the view of Ackwise" in notes[0]
        assert notes[0] in caplog.text
        assert read_all(url, "SELECT mine FROM dead_letter_queue") == [(7,)]
    finally:
        execute(url, "DROP TABLE dead_letter_queue")
    set_schema(url, 8)
    with closing(open_store(url)) as store:
        assert [note for note in store.notes() if "view" in note] == []


def set_schema(url: str, version: int) -> None:
    """As if the store had an older schema. The step creates again what is missing."""
    for name in ("trace", "trace_name", "trace_pruned", "maintenance", "spool", "pipeline"):
        execute(url, f"DROP TABLE {name}" if is_sqlite(url) else f"DROP TABLE ackwise.{name}")
    if is_sqlite(url):
        for undo in (
            "DROP INDEX dead_kind",
            "ALTER TABLE dead DROP COLUMN kind",
            "DROP INDEX dead_mark",
            "ALTER TABLE dead DROP COLUMN mark",
            "DROP TABLE hook",
        ):
            execute(url, undo)
        execute(url, f"PRAGMA user_version = {version}")
    else:
        execute(url, "ALTER TABLE ackwise.dead DROP COLUMN kind")
        execute(url, f"UPDATE ackwise.meta SET value = '{version}' WHERE key = 'schema'")


def read_all(url: str, statement: str) -> list[tuple[object, ...]]:
    if is_sqlite(url):
        with closing(apsw.Connection(file_of(url))) as database:
            return list(database.execute(statement))
    with psycopg.connect(url) as connection:
        return list(connection.execute(statement.encode()))


def test_examples_of_the_page_run(url: str, queue: Connection, lease_id: str) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "sql-views.md").read_text()
    blocks = re.findall(r"^```(sql|postgresql)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    for kind, block in blocks:
        if kind == "sql" or not is_sqlite(url):
            statements = [statement for statement in block.split(";") if statement.strip()]
            for statement in statements:
                execute(url, statement)


# PostgreSQL only


def test_messages_view_unpacks_every_field(pg_url: str) -> None:
    with connect(pg_url) as queue:
        queue.push("q", {"n": 1}, transaction_id="tx-ä", headers={"k": "ü"}, priority=3)
        queue.push("q", b"\x00\xff", content_type="image/png")
        queue.push("q", b"not json")
        for start in range(0, 600, 200):
            queue.push_many("q", [{"n": n} for n in range(start, start + 200)], partition="many")
        queue.push("other", 1)
        stored = list(queue.browse("q", limit=1000))
    with psycopg.connect(pg_url) as connection:
        rows = connection.execute(
            "SELECT message_id::text, transaction_id, partition, priority, seq, content_type, headers, payload, data,"
            " created_at FROM ackwise_messages WHERE queue = 'q'"
        ).fetchall()
    assert len(rows) == len(stored) == 603
    by_id = {row[0]: row for row in rows}
    for message in stored:
        row = by_id[message.id]
        expected = (message.transaction_id, message.partition, message.priority, message.seq)
        assert row[1:5] == expected
        assert row[5:8] == (message.content_type, message.headers, message.payload)
        assert plain(row[9]) == shown(message.created_at)
    assert {row[8]["n"] for row in rows if isinstance(row[8], dict)} == set(range(600)) | {1}
    assert [row[8] for row in rows if row[7] in (b"\x00\xff", b"not json")] == [None, None]


def test_views_without_public_are_in_our_schema(pg_url: str) -> None:
    """A user who may not create in `public` finds the views after SET search_path."""
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute("ALTER SCHEMA public RENAME TO hidden")
        try:
            with closing(open_store(pg_url)) as store:
                assert [note for note in store.notes() if "SET search_path" in note]
            connection.execute("SET search_path = ackwise")
            assert connection.execute("SELECT count(*) FROM partition_consumers").fetchone() == (0,)
        finally:
            connection.execute("ALTER SCHEMA hidden RENAME TO public")


def test_reader_needs_only_a_grant_on_the_view(pg_url: str) -> None:
    with connect(pg_url) as queue, psycopg.connect(pg_url) as connection:
        queue.push("q", {"n": 1})
        queue.claim("q", max=1)[0].ack()
        connection.execute("CREATE ROLE view_reader")
        names = ", ".join(ALL)
        connection.execute(f"GRANT SELECT ON {names} TO view_reader".encode())
        connection.execute("SET ROLE view_reader")
        for name in ALL:
            connection.execute(f"SELECT * FROM {name}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM ackwise.queue")
        connection.rollback()
