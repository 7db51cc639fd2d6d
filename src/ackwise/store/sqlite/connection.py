"""Opening the file: pragmas that are read back, errors in our words, migrations."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path

import apsw

from ackwise.core import errors
from ackwise.store.url import StoreURL

SCHEMA_VERSION = 6
INCREMENTAL = 2
"""The `auto_vacuum` of a file that can give free pages back."""
_APPLICATION_ID = 0x41434B57
_CODES: tuple[tuple[type[apsw.Error], type[errors.StoreError]], ...] = (
    (apsw.FullError, errors.StoreFull),
    (apsw.ReadOnlyError, errors.StoreReadOnly),
    (apsw.PermissionsError, errors.StoreReadOnly),
    (apsw.BusyError, errors.StoreLocked),
    (apsw.LockedError, errors.StoreLocked),
    (apsw.CorruptError, errors.StoreCorrupt),
    (apsw.NotADBError, errors.StoreCorrupt),
    (apsw.CantOpenError, errors.StoreUnavailable),
    (apsw.IOError, errors.StoreUnavailable),
)


def translated(problem: apsw.Error, path: str) -> errors.StoreError:
    """apsw's error as ours, with what to do about it."""
    for theirs, ours in _CODES:
        if isinstance(problem, theirs):
            return ours(f"{(ours.__doc__ or '').strip()} ({path}: {problem})")
    return errors.StoreError(f"{path}: {problem}")


NAP = 0.0005
LONGEST_NAP = 0.005


@contextmanager
def our_errors(path: str) -> Iterator[None]:
    try:
        yield
    except apsw.Error as problem:
        raise translated(problem, path) from problem


def open_writer(url: StoreURL, vfs: str | None = None) -> apsw.Connection:
    """The connection that writes; makes the file and its tables when they are not there."""
    path = url.target
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise errors.StoreUnavailable(f"the folder {folder} does not exist; create it or correct the store URL")
    _create_private(path)
    with our_errors(path):
        connection = apsw.Connection(path, vfs=vfs, statementcachesize=256)
        _prepare_once(connection)
        connection.set_busy_handler(_patience(url.busy_timeout))
        refuse_foreign(connection, path)
        if connection.pragma("page_count") == 0:
            # Only an empty file accepts this setting. `ackwise vacuum` converts a file that has tables.
            list(connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}"))
        _pragma(connection, "journal_mode", "wal")
        _pragma(connection, "synchronous", "2" if url.durability == "full" else "1")
        _pragma(connection, "wal_autocheckpoint", "0")
        _pragma(connection, "foreign_keys", "0")
        _pragma(connection, "cache_size", "-12288")
        _pragma(connection, "temp_store", "2")
        if os.access(path, os.F_OK) and not os.access(path, os.W_OK):
            raise errors.StoreReadOnly(f"{path} cannot be written; check its permissions")
        _migrate(connection, path)
    return connection


def _create_private(path: str) -> None:
    """Create a new store's file for its owner alone. SQLite gives the WAL the file's mode. An existing file keeps its
    mode. SQLite itself reports a file that cannot be created."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def open_reader(url: StoreURL, vfs: str | None = None) -> apsw.Connection:
    with our_errors(url.target):
        connection = apsw.Connection(url.target, vfs=vfs, statementcachesize=256)
        _prepare_once(connection)
        connection.set_busy_handler(_patience(url.busy_timeout))
        _pragma(connection, "wal_autocheckpoint", "0")
        _pragma(connection, "query_only", "1")
        _pragma(connection, "cache_size", "-4096")
    return connection


def _patience(seconds: float) -> Callable[[int], bool]:
    """Wait for another process's turn, which takes a few milliseconds: SQLite's own handler soon sleeps for 25 and
    more between its tries, so that two busy processes would mostly sleep."""
    end = 0.0

    def wait(tries: int) -> bool:
        nonlocal end
        now = time.monotonic()
        end = now + seconds if tries == 0 else end
        if now >= end:
            return False
        time.sleep(min(LONGEST_NAP, NAP * (tries + 1), end - now))
        return True

    return wait


def _prepare_once(connection: apsw.Connection) -> None:
    """Where SQLite is built with STAT4, a statement is compiled anew whenever a value is bound to an indexed column,
    which costs far more than the look-up itself. The planner's stability guarantee turns that off."""
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _pragma(connection: apsw.Connection, name: str, value: str) -> None:
    """Set, then read back: SQLite ignores what it does not like without a word."""
    list(connection.execute(f"PRAGMA {name} = {value}"))
    now = str(connection.pragma(name))
    if now != value:
        raise errors.StoreUnavailable(
            f"SQLite refused {name} = {value} (it says {now}); is the file on a network share?"
        )


def refuse_foreign(connection: apsw.Connection, path: str) -> None:
    """Before anything is changed in it: the file is empty, or ours and of a schema we know."""
    alone = not connection.in_transaction
    if alone:
        list(connection.execute("BEGIN"))
    try:
        owner, version = connection.pragma("application_id"), connection.pragma("user_version")
        tables = list(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1"))
    finally:
        if alone:
            list(connection.execute("ROLLBACK"))
    if owner != _APPLICATION_ID and tables:
        raise errors.StoreCorrupt(f"{path} is a SQLite database, but not one of Ackwise; choose another file")
    if version > SCHEMA_VERSION:
        raise errors.SchemaTooNew(
            f"{path} has schema {version}, this Ackwise knows {SCHEMA_VERSION}: upgrade it to open the file"
        )


def _migrate(connection: apsw.Connection, path: str) -> None:
    """Bring an older schema up to date, refuse a newer one and a file that is not ours."""
    if connection.pragma("user_version") == SCHEMA_VERSION:
        return
    list(connection.execute("BEGIN IMMEDIATE"))
    try:
        refuse_foreign(connection, path)
        version = connection.pragma("user_version")
        for number in range(version + 1, SCHEMA_VERSION + 1):
            _apply(connection, f"schema_{number:04d}.sql")
        if version == 0:
            list(connection.execute("INSERT INTO meta VALUES ('seed', ?)", (secrets.token_hex(16),)))
            list(connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}"))
        list(connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}"))
        list(connection.execute("COMMIT"))
    except BaseException:
        if connection.in_transaction:
            list(connection.execute("ROLLBACK"))
        raise


def _apply(connection: apsw.Connection, file: str) -> None:
    for _ in connection.execute(resources.files("ackwise.store.sqlite").joinpath(file).read_text("utf-8")):
        pass
