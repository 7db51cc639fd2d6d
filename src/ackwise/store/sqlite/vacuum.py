"""Returns free pages of a SQLite file: a few per turn, or all of them by `ackwise vacuum`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import apsw
import msgspec

from ackwise.core import errors
from ackwise.store.sqlite.connection import INCREMENTAL, check_owner, translated_errors
from ackwise.wire.store_url import StoreURL

KEPT = 1024
"""Free pages that stay in the file: the next messages need them."""
KEPT_SHARE = 10
"""Share of the file that stays free: one page in this many."""
SLICE = 200
"""Pages that one turn returns."""
_OPERATIONS = 1_000_000


class Compacted(msgspec.Struct, frozen=True):
    """Bytes of a store before and after a vacuum. `converted`: the file could not return pages before."""

    before: int
    after: int
    converted: bool = False


def free_pages(connection: apsw.Connection) -> int:
    """Number of free pages that the file can return. A reserve of free pages stays in the file."""
    free: int = connection.pragma("freelist_count")
    return free - max(KEPT, connection.pragma("page_count") // KEPT_SHARE) if free > KEPT else 0


def release_pages(connection: apsw.Connection, most: int = SLICE) -> int:
    """Return some free pages inside the transaction of a turn. The result is their number."""
    if (free := free_pages(connection)) <= 0 or connection.pragma("auto_vacuum") != INCREMENTAL:
        return 0
    return len(connection.execute(f"PRAGMA incremental_vacuum({min(most, free)})").fetchall())


def notes(connection: apsw.Connection, path: str) -> list[str]:
    """Maintenance hints of `ackwise check` for a file."""
    command = f"run: ackwise vacuum --url sqlite:///{path}"
    hints = []
    if connection.pragma("auto_vacuum") != INCREMENTAL:
        hints.append(f"the file cannot return free pages: an older Ackwise created it; stop its server and {command}")
    free, pages = connection.pragma("freelist_count"), connection.pragma("page_count")
    if free > KEPT and 4 * free > pages:
        size = free * connection.pragma("page_size") >> 20
        hints.append(f"{free} of {pages} pages of the file are free ({size} MiB); to compact it now {command}")
    return hints


def vacuum(url: StoreURL, progress: Callable[[], None] = lambda: None) -> Compacted:
    """Rewrite the file without its free pages, so that it can return pages from now on. Needs exclusive access."""
    path = url.target
    before = _size(path)
    with translated_errors(path):
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            check_owner(connection, path)
            converted = connection.pragma("auto_vacuum") != INCREMENTAL
            connection.set_progress_handler(_as_progress_handler(progress), _OPERATIONS)
            # Leaving WAL mode requires exclusive access to the file. VACUUM itself does not require it.
            _leave_wal_mode(connection, path)
            list(connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}"))
            list(connection.execute("VACUUM"))
            list(connection.execute("PRAGMA journal_mode = wal"))
        finally:
            connection.close()
    return Compacted(before, _size(path), converted)


def _as_progress_handler(progress: Callable[[], None]) -> Callable[[], bool]:
    def call() -> bool:
        progress()
        return False

    return call


def _leave_wal_mode(connection: apsw.Connection, path: str) -> None:
    try:
        mode = connection.execute("PRAGMA journal_mode = delete").fetchall()[0][0]
    except apsw.BusyError:
        mode = "busy"
    if mode != "delete":
        raise errors.StoreLocked(f"{path} is open in another process; stop that process and try again")


def _size(path: str) -> int:
    """Bytes of the file and its write-ahead log."""
    total = 0
    for name in (path, f"{path}-wal"):
        with suppress(FileNotFoundError):
            total += os.path.getsize(name)
    return total
