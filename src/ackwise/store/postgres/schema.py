"""The tables live in a schema of their own; its version is in `meta`."""

from __future__ import annotations

import secrets
from importlib import resources

import psycopg

from ackwise.core import errors
from ackwise.store.postgres.connection import Connection

SCHEMA_VERSION = 6
_LOCK = 0x41434B57_0000_0001


def migrate(connection: Connection, where: str) -> None:
    """Make the tables or bring older ones up to date; one broker does it while the others wait."""
    if _version(connection) == SCHEMA_VERSION:
        return
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            version = _version(connection)
            if version > SCHEMA_VERSION:
                raise errors.SchemaTooNew(
                    f"{where} has schema {version}, this Ackwise knows {SCHEMA_VERSION}: upgrade it to open it"
                )
            if version == 0:
                _make_room(connection, where)
            for number in range(version + 1, SCHEMA_VERSION + 1):
                connection.execute(script(number))
            if version == 0:
                connection.execute("INSERT INTO meta VALUES ('seed', %s)", (secrets.token_hex(16),))
            connection.execute(
                "INSERT INTO meta VALUES ('schema', %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (str(SCHEMA_VERSION),),
            )
    except psycopg.errors.InsufficientPrivilege as problem:
        raise errors.StoreReadOnly(
            f"{where}: this user may not create the schema 'ackwise'; grant it CREATE on the database ({problem})"
        ) from problem


def script(number: int) -> bytes:
    return resources.files("ackwise.store.postgres").joinpath(f"schema_{number:04d}.sql").read_bytes()


def _version(connection: Connection) -> int:
    # Not to_regclass: it remembers that a name was not there, also after waiting for the one who made it.
    if "meta" not in _tables(connection):
        return 0
    found = connection.execute("SELECT value FROM ackwise.meta WHERE key = 'schema'").fetchone()
    return int(found[0]) if found else 0


def _tables(connection: Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'ackwise'")}


def _make_room(connection: Connection, where: str) -> None:
    if _tables(connection):
        raise errors.StoreCorrupt(
            f"{where} has a schema 'ackwise' that is not ours; choose another database, or drop that schema"
        )
    connection.execute("CREATE SCHEMA IF NOT EXISTS ackwise")
