"""Schema version and migrations."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from importlib import resources
from typing import Any

import psycopg

from ackwise.core import errors
from ackwise.engine.extensions import Extension
from ackwise.store import letter_kinds
from ackwise.store.postgres import views
from ackwise.store.postgres.connection import Connection

SCHEMA_VERSION = 10
_LOCK = 0x41434B57_0000_0001


def migrate(connection: Connection, where: str) -> int:
    """Create the tables or migrate an older schema. One broker migrates while the others wait.

    Returns the version before. 0 is a new store.
    """
    if _version(connection) == SCHEMA_VERSION:
        return SCHEMA_VERSION
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            version = _version(connection)
            if version > SCHEMA_VERSION:
                raise errors.SchemaTooNew(
                    f"{where} has schema {version}, this Ackwise knows {SCHEMA_VERSION}; upgrade Ackwise to open it"
                )
            if version == 0:
                _create_schema(connection, where)
            for number in range(version + 1, SCHEMA_VERSION + 1):
                connection.execute(script(number))
                if number == letter_kinds.STEP:
                    _fill_kinds(connection)
            views.create(connection, where)
            if version == 0:
                connection.execute("INSERT INTO meta VALUES ('seed', %s)", (secrets.token_hex(16),))
            _set_version(connection, "schema", SCHEMA_VERSION)
    except psycopg.errors.InsufficientPrivilege as problem:
        raise errors.StoreReadOnly(
            f"{where}: this user may not create the schema 'ackwise'; grant it CREATE on the database ({problem})"
        ) from problem
    return version


def _fill_kinds(connection: Connection) -> None:
    def read(after: int, limit: int) -> list[Any]:
        rows = "SELECT id, error FROM ackwise.dead WHERE id > %s ORDER BY id LIMIT %s"
        return connection.execute(rows, (after, limit)).fetchall()

    def write(kinds: Iterable[tuple[int, str]]) -> None:
        numbers, texts = zip(*kinds, strict=True)
        connection.execute(
            "UPDATE ackwise.dead AS d SET kind = k.kind"
            " FROM unnest(CAST(%s AS bigint[]), CAST(%s AS text[])) AS k (id, kind) WHERE d.id = k.id",
            (list(numbers), list(texts)),
        )

    letter_kinds.fill(read, write)


def add_tables(connection: Connection, where: str, extension: Extension) -> int:
    """Create the tables of an extension or migrate them. One broker migrates while the others wait.

    Returns the version before. 0 means that the database had none of the tables.
    """
    if _version(connection, extension.meta_key) == extension.schema_version:
        return extension.schema_version
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        version = _version(connection, extension.meta_key)
        extension.check_version(version, where)
        for number in range(version + 1, extension.schema_version + 1):
            connection.execute(resources.files(extension.tables).joinpath(f"postgres_{number:04d}.sql").read_bytes())
        _set_version(connection, extension.meta_key, extension.schema_version)
    return version


def script(number: int) -> bytes:
    return resources.files("ackwise.store.postgres").joinpath(f"schema_{number:04d}.sql").read_bytes()


def _version(connection: Connection, key: str = "schema") -> int:
    # Not to_regclass: after a wait for the broker that creates the table, it still reports the table as missing.
    if "meta" not in _tables(connection):
        return 0
    row = connection.execute("SELECT value FROM ackwise.meta WHERE key = %s", (key,)).fetchone()
    return int(row[0]) if row else 0


def _set_version(connection: Connection, key: str, version: int) -> None:
    connection.execute(
        "INSERT INTO meta VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, str(version))
    )


def _tables(connection: Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'ackwise'")}


def _create_schema(connection: Connection, where: str) -> None:
    if _tables(connection):
        raise errors.StoreCorrupt(
            f"{where} has a schema 'ackwise' of another program; choose another database, or drop that schema"
        )
    connection.execute("CREATE SCHEMA IF NOT EXISTS ackwise")
