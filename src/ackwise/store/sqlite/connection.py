"""Opens the file: pragmas, error translation, migrations."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

import apsw

from ackwise.core import errors
from ackwise.core.events import EventPort, StoreMigrated
from ackwise.engine.extensions import Extension
from ackwise.store import letter_kinds
from ackwise.store.clock_anchor import Anchor, anchor_for, read_machine
from ackwise.store.sqlite import views
from ackwise.wire.store_url import StoreURL

log = logging.getLogger("ackwise.store")

SCHEMA_VERSION = 10
INCREMENTAL = 2
"""Value of `auto_vacuum` for a file that can return free pages to the file system."""
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


def translate_error(problem: apsw.Error, path: str) -> errors.StoreError:
    """The store error for an apsw error. Its text says what to do."""
    for apsw_error, store_error in _CODES:
        if isinstance(problem, apsw_error):
            return store_error(f"{(store_error.__doc__ or '').strip()} ({path}: {problem})")
    return errors.StoreError(f"{path}: {problem}")


FIRST_SLEEP = 0.0005
LONGEST_SLEEP = 0.005


@contextmanager
def translated_errors(path: str) -> Iterator[None]:
    try:
        yield
    except apsw.Error as problem:
        raise translate_error(problem, path) from problem


def open_writer(url: StoreURL, vfs: str | None = None, events: EventPort | None = None) -> apsw.Connection:
    """Open the writing connection. Creates the file and its tables if they do not exist."""
    path = url.target
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise errors.StoreUnavailable(f"the folder {folder} does not exist; create it or correct the store URL")
    _create_private(path)
    with translated_errors(path):
        connection = apsw.Connection(path, vfs=vfs, statementcachesize=256)
        _plan_once(connection)
        connection.set_busy_handler(busy_handler(url.busy_timeout))
        check_owner(connection, path)
        if connection.pragma("page_count") == 0:
            # Only an empty file accepts this setting. `ackwise vacuum` converts a file that has tables.
            list(connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}"))
        _set_pragma(connection, "journal_mode", "wal")
        _set_pragma(connection, "synchronous", "2" if url.durability == "full" else "1")
        _set_pragma(connection, "wal_autocheckpoint", "0")
        _set_pragma(connection, "foreign_keys", "0")
        _set_pragma(connection, "cache_size", "-12288")
        _set_pragma(connection, "temp_store", "2")
        if os.access(path, os.F_OK) and not os.access(path, os.W_OK):
            raise errors.StoreReadOnly(f"{path} cannot be written; check its permissions")
        before = _migrate(connection, path)
    if before != SCHEMA_VERSION and events is not None and events.listening:
        events.emit(StoreMigrated(path, before, SCHEMA_VERSION))
    return connection


def _create_private(path: str) -> None:
    """Create the file with mode 0600. SQLite gives the WAL the mode of the file. An existing file keeps its mode.

    SQLite itself reports a file that cannot be created.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def open_reader(url: StoreURL, vfs: str | None = None) -> apsw.Connection:
    with translated_errors(url.target):
        connection = apsw.Connection(url.target, vfs=vfs, statementcachesize=256)
        _plan_once(connection)
        connection.set_busy_handler(busy_handler(url.busy_timeout))
        _set_pragma(connection, "wal_autocheckpoint", "0")
        _set_pragma(connection, "query_only", "1")
        _set_pragma(connection, "cache_size", "-4096")
    return connection


def busy_handler(seconds: float) -> Callable[[int], bool]:
    """Waits while another process holds the write lock, in short sleeps.

    A turn takes a few milliseconds. SQLite's own handler sleeps for 25 ms and more between its tries, so two busy
    processes would mostly sleep.
    """
    end = 0.0

    def wait(tries: int) -> bool:
        nonlocal end
        now = time.monotonic()
        end = now + seconds if tries == 0 else end
        if now >= end:
            return False
        time.sleep(min(LONGEST_SLEEP, FIRST_SLEEP * (tries + 1), end - now))
        return True

    return wait


def _plan_once(connection: apsw.Connection) -> None:
    """Make SQLite compile each statement only once, by its query planner stability guarantee.

    Otherwise a SQLite built with STAT4 compiles a statement again whenever a value is bound to an indexed column. That
    costs far more than the look-up.
    """
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _set_pragma(connection: apsw.Connection, name: str, value: str) -> None:
    """Set a pragma and read it back, because SQLite ignores values that it does not accept."""
    list(connection.execute(f"PRAGMA {name} = {value}"))
    current = str(connection.pragma(name))
    if current != value:
        raise errors.StoreUnavailable(
            f"SQLite refused {name} = {value} (it says {current}); is the file on a network share?"
        )


def check_owner(connection: apsw.Connection, path: str) -> None:
    """Check before the first change that the file is empty, or a store with a known schema."""
    begins = not connection.in_transaction
    if begins:
        list(connection.execute("BEGIN"))
    try:
        owner, version = connection.pragma("application_id"), connection.pragma("user_version")
        tables = list(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1"))
    finally:
        if begins:
            list(connection.execute("ROLLBACK"))
    if owner != _APPLICATION_ID and tables:
        raise errors.StoreCorrupt(f"{path} is a SQLite database, but not one of Ackwise; choose another file")
    if version > SCHEMA_VERSION:
        raise errors.SchemaTooNew(
            f"{path} has schema {version}, this Ackwise knows {SCHEMA_VERSION}; upgrade Ackwise to open the file"
        )


def _migrate(connection: apsw.Connection, path: str) -> int:
    """Create the tables or migrate an older schema. Refuses a newer schema and a file of another program.

    Returns the version before. 0 is a new store.
    """
    if connection.pragma("user_version") == SCHEMA_VERSION:
        return SCHEMA_VERSION
    with _transaction(connection):
        check_owner(connection, path)
        version = connection.pragma("user_version")
        for number in range(version + 1, SCHEMA_VERSION + 1):
            _apply(connection, f"schema_{number:04d}.sql")
            if number == letter_kinds.STEP:
                _fill_kinds(connection)
        views.create(connection, path)
        if version == 0:
            list(connection.execute("INSERT INTO meta VALUES ('seed', ?)", (secrets.token_hex(16),)))
            list(connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}"))
        list(connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}"))
    return int(version)


def _fill_kinds(connection: apsw.Connection) -> None:
    def read(after: int, limit: int) -> list[Any]:
        rows = "SELECT id, error FROM dead WHERE id > ? ORDER BY id LIMIT ?"
        return connection.execute(rows, (after, limit)).fetchall()

    def write(kinds: Iterable[tuple[int, str]]) -> None:
        connection.executemany("UPDATE dead SET kind = ? WHERE id = ?", [(kind, number) for number, kind in kinds])

    letter_kinds.fill(read, write)


def add_tables(connection: apsw.Connection, path: str, extension: Extension) -> int:
    """Create the tables of an extension or migrate them. Refuses a newer schema of the extension.

    Returns the version before. 0 means that the file had none of the tables.
    """
    if _extension_version(connection, extension) == extension.schema_version:
        return extension.schema_version
    with _transaction(connection):
        version = _extension_version(connection, extension)
        extension.check_version(version, path)
        for number in range(version + 1, extension.schema_version + 1):
            _apply(connection, f"sqlite_{number:04d}.sql", extension.tables)
        row = (extension.meta_key, str(extension.schema_version))
        list(connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", row))
    return version


def anchor_store(connection: apsw.Connection) -> Anchor | None:
    """The store's anchor for this boot. None on a system that does not name its boots.

    The first process of a boot writes the anchor. It also extends the live leases by the downtime: only the wall clock
    knows the downtime, and a wall clock that is wrong at boot must not end them.
    """
    reading = read_machine()
    if reading is None:
        log.warning("cannot read the boot id; leases follow the wall clock, and a step of it changes them")
        return None
    row = _anchor_row(connection)
    if row is not None and anchor_for(row, reading)[0] == row:
        return row
    with _transaction(connection):
        row = _anchor_row(connection)  # again: another process may have written it
        anchor, downtime = anchor_for(row, reading)
        if row != anchor:
            list(connection.execute("INSERT OR REPLACE INTO anchor VALUES (1, ?, ?, ?, ?, ?)", anchor))
        if downtime:
            list(connection.execute("UPDATE lease SET deadline = deadline + ? WHERE ended_at IS NULL", (downtime,)))
    return anchor


def _anchor_row(connection: apsw.Connection) -> Anchor | None:
    rows: list[Any] = connection.execute("SELECT boot, boottime, anchored, shift, seen FROM anchor").fetchall()
    return Anchor(*rows[0]) if rows else None


def _extension_version(connection: apsw.Connection, extension: Extension) -> int:
    rows = connection.execute("SELECT value FROM meta WHERE key = ?", (extension.meta_key,)).fetchall()
    return int(str(rows[0][0])) if rows else 0


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    list(connection.execute("BEGIN IMMEDIATE"))
    try:
        yield
        list(connection.execute("COMMIT"))
    except BaseException:
        if connection.in_transaction:
            list(connection.execute("ROLLBACK"))
        raise


def _apply(connection: apsw.Connection, file: str, package: str = "ackwise.store.sqlite") -> None:
    for _ in connection.execute(resources.files(package).joinpath(file).read_text("utf-8")):
        pass
