"""Databases of PostgreSQL for tests: each worker makes a few, empties them and uses them again."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests.fresh_stores import Tables, create_tables

_STRUCTURE = """
SELECT md5(string_agg(relation::text, ' ' ORDER BY relation.oid)) FROM (
  SELECT oid, relname, relkind, relnatts, relchecks, relhastriggers, relacl, reloptions FROM pg_class
  WHERE relnamespace IN (to_regnamespace('ackwise'), to_regnamespace('public'))) AS relation"""
"""Digest of tables, indexes, views and sequences. It differs if a test changed one of them, or if there are none."""
_TERMINATE = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()"""


class Database:
    """One database, which `empty` brings back to the state of a new store."""

    def __init__(self, url: str, tables: Tables) -> None:
        self.url, self._tables = url, tables
        self._structure: str | None = None
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._sequences: list[tuple[Any, ...]] = []

    def empty(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(_TERMINATE)
            if self._structure is not None and self._structure == _structure(connection):
                self._restore_rows(connection)
                return
        clean(self.url)
        if self._tables is not Tables.NONE:
            self._create_tables()

    def _create_tables(self) -> None:
        create_tables(self.url, self._tables)
        with psycopg.connect(self.url, autocommit=True) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'ackwise'").fetchall()
            self._rows = {name: _rows(connection, name) for (name,) in tables}
            self._sequences = _sequences(connection)
            self._structure = _structure(connection)

    def _restore_rows(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """A test leaves rows in few tables. To empty these is much faster than to create all tables again."""
        counts = sql.SQL(" UNION ALL ").join(
            sql.SQL("SELECT {}, EXISTS (SELECT FROM {})").format(sql.Literal(name), sql.Identifier("ackwise", name))
            for name in self._rows
        )
        filled = {name for name, has_rows in connection.execute(counts).fetchall() if has_rows}
        changed = [name for name in self._rows if self._is_changed(connection, name, filled=name in filled)]
        with connection.transaction():
            if changed:
                names = sql.SQL(", ").join(sql.Identifier("ackwise", name) for name in changed)
                connection.execute(sql.SQL("TRUNCATE {}").format(names))
            for name in changed:
                for row in self._rows[name]:
                    _insert(connection, name, row)
            if _sequences(connection) != self._sequences:
                self._restore_sequences(connection)

    def _is_changed(self, connection: psycopg.Connection[tuple[Any, ...]], table: str, *, filled: bool) -> bool:
        rows = self._rows[table]
        return filled != bool(rows) or (filled and _rows(connection, table) != rows)

    def _restore_sequences(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        for name, start, last in self._sequences:
            value = start if last is None else last
            connection.execute("SELECT setval(%s, %s, %s)", (f"ackwise.{name}", value, last is not None))


def _insert(connection: psycopg.Connection[tuple[Any, ...]], table: str, row: tuple[Any, ...]) -> None:
    values = sql.SQL(", ").join(map(sql.Literal, row))
    insert = sql.SQL("INSERT INTO {} OVERRIDING SYSTEM VALUE VALUES ({})")
    connection.execute(insert.format(sql.Identifier("ackwise", table), values))


def _structure(connection: psycopg.Connection[tuple[Any, ...]]) -> str | None:
    row = connection.execute(_STRUCTURE).fetchone()
    digest: str | None = row[0] if row else None
    return digest


def _rows(connection: psycopg.Connection[tuple[Any, ...]], table: str) -> list[tuple[Any, ...]]:
    rows = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier("ackwise", table)))
    return sorted(rows.fetchall())


def _sequences(connection: psycopg.Connection[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Name, first value, and last value of each sequence. The last value of an unused sequence is None."""
    return connection.execute(
        "SELECT sequencename, start_value, last_value FROM pg_sequences WHERE schemaname = 'ackwise' ORDER BY 1"
    ).fetchall()


class Databases:
    """Databases of one worker. To empty one is ten times faster than to make one."""

    def __init__(self, admin_url: str, name: str = "test") -> None:
        self._admin_url, self._name = admin_url, name
        self._worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self._made: defaultdict[Tables, list[Database]] = defaultdict(list)
        self._used: defaultdict[Tables, int] = defaultdict(int)

    def fresh(self, tables: Tables = Tables.NONE) -> str:
        """The URL of a database without rows: an empty one, or one with tables that a store has created."""
        made, used = self._made[tables], self._used[tables]
        if used == len(made):
            made.append(Database(self._make(f"{tables.value}_{used}"), tables))
        self._used[tables] += 1
        made[used].empty()
        return made[used].url

    def give_back(self) -> None:
        self._used.clear()

    def _make(self, suffix: str) -> str:
        name = f"ackwise_{self._name}_{self._worker}_{suffix}"
        with psycopg.connect(self._admin_url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
        parts = urlsplit(self._admin_url)
        return urlunsplit((parts.scheme, parts.netloc, f"/{name}", parts.query, ""))

    def drop(self) -> None:
        with psycopg.connect(self._admin_url, autocommit=True) as connection:
            for database in (database for made in self._made.values() for database in made):
                name = urlsplit(database.url).path.strip("/")
                connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


def clean(url: str) -> None:
    """Ends every connection and deletes everything stored."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_TERMINATE)
        connection.execute("SET client_min_messages = warning")
        connection.execute("DROP SCHEMA IF EXISTS ackwise CASCADE")
