"""Named statements and row locks on psycopg."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from psycopg import errors as pg

from ackwise.engine.extensions import Extension
from ackwise.engine.ports import Outdated, Params, Row
from ackwise.engine.statement_meter import Meter
from ackwise.store import sql_files
from ackwise.store.postgres.connection import Connection
from ackwise.store.row_cache import CATALOG_STATEMENTS, RowCache


def _load(files: Sequence[sql_files.File], overrides: Sequence[sql_files.File]) -> dict[str, bytes]:
    loaded = sql_files.load(files, overrides)
    statements = sql_files.with_lists(loaded, "= ANY(CAST(translate(:ids, '[]', '{}') AS bigint[]))")
    return {name: sql_files.for_psycopg(text).encode() for name, text in statements.items()}


STATEMENTS = _load(sql_files.shared(), [("ackwise.store.postgres", "postgres.sql")])
_GROUP_LOCKS = 0x41434B57 << 32
_INSTANCE_LOCKS = 0x41434B49 << 32
_NONE: Params = {}
MOST_PARTITIONS = 50_000
T = TypeVar("T")
FEW = 32
"""Up to this many rows come at once, by a prepared statement. More are streamed, so that the meter counts them."""
CHUNK = 50
NEAR = 0.9
"""A statement timeout is set again when the remaining time is below this part of it."""


def add_statements(extension: Extension) -> None:
    """Add the named statements of an extension, for all stores of this process."""
    loaded = _load([(extension.tables, "statements.sql")], [(extension.tables, "postgres.sql")])
    sql_files.add(STATEMENTS, loaded)


def instance_lock(instance: str) -> dict[str, int]:
    """Key of the advisory lock that marks a broker as alive.

    The notifier's connection holds the lock. The connection ends with the broker's process.
    """
    return {"key": _INSTANCE_LOCKS | zlib.crc32(instance.encode())}


class PostgresSession:
    """Statements and row locks on one connection.

    A row lock lasts until the transaction ends, or until a rollback to an earlier savepoint.
    """

    works_here = False

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._cursor = connection.cursor(binary=True)
        self._groups: dict[int, bool] = {}
        self._owned: set[int] = set()
        self._owned_before: set[int] = set()
        self._skipped_leases = False
        self._row_cache = RowCache(CATALOG_STATEMENTS - {"part_by_id"} | {"lane_of_part"}, ("lane_",))
        """Rows of one turn. A turn reads a lane's row only while it locks the partition, so the row cannot change."""
        self._partitions: dict[int, Row] = {}
        """Rows of partitions by id. They stay valid, because ids are never reused."""
        self._timeout = 0.0
        """Seconds after which PostgreSQL stops a statement of this transaction. 0 means never."""
        self._timeouts: list[float] = []
        """The timeout at each savepoint."""

    def begin(self, statement: bytes = b"BEGIN") -> None:
        self._row_cache.rows.clear()
        self._timeout = 0.0
        self._timeouts.clear()
        self._owned.clear()
        self._groups.clear()
        self._skipped_leases = False
        self._cursor.execute(statement)

    def end(self, statement: bytes = b"COMMIT") -> str:
        """Commit or roll back. Returns the command tag of PostgreSQL.

        A COMMIT of a failed transaction returns ROLLBACK.
        """
        return self._cursor.execute(statement).statusmessage or ""

    @property
    def passed_over(self) -> int:
        return 1 + len(self._owned) if self._skipped_leases else 0

    def set_lock_timeout(self, seconds: float) -> None:
        """Bound the wait for each lock until the transaction ends."""
        self.rows("lock_timeout", {"timeout": f"{max(1, round(seconds * 1000))}ms"})

    def rows(self, name: str, params: Params = _NONE) -> list[Row]:
        rows = self._cursor.execute(STATEMENTS[name], params).fetchall()
        if rows and name in ("leases_expired", "leases_expired_in_group"):
            return self._lock_expired([row[0] for row in rows], params)
        return rows

    def _lock_expired(self, leases: list[int], params: Params) -> list[Row]:
        """Lock expired leases without waiting. Skips leases in partitions that another turn holds.

        Every turn locks partitions before leases.
        """
        parts: dict[int, set[int]] = {lease: set() for lease in leases}
        for lease, part in self.rows("leases_parts", {"leases": leases}):
            parts[lease].add(part)
        owned = self.lock_parts(sorted(set().union(*parts.values())), skip=True)
        free = [lease for lease in leases if parts[lease] <= owned]
        rows = self.rows("leases_expired_lock", {"leases": free, "now": params["now"]}) if free else []
        self._skipped_leases = self._skipped_leases or len(rows) < len(leases)
        return rows

    def row(self, name: str, params: Params = _NONE) -> Row | None:
        if name == "part_by_id":
            return self._partition(params)
        cache = self._row_cache
        cached = name in cache.names
        known = cache.rows.get((name, *params.values())) if cached else None
        if known is not None:
            return known
        if not cached and cache.changes[name]:
            cache.rows.clear()
        rows = self._cursor.execute(STATEMENTS[name], params).fetchall()
        if rows and cached:
            cache.put(name, params, rows[0])
        return rows[0] if rows else None

    def _partition(self, params: Params) -> Row | None:
        part = params["id"]
        if part not in self._partitions:
            rows = self.rows("part_by_id", params)
            if not rows:
                return None
            if len(self._partitions) >= MOST_PARTITIONS:
                self._partitions.clear()
            self._partitions[part] = rows[0]
        return self._partitions[part]

    def cache_row(self, name: str, params: Params, row: Row) -> None:
        """Cache a row as if the statement `name` had returned it."""
        self._row_cache.put(name, params, row)

    def run(self, name: str, params: Params = _NONE) -> int:
        if self._row_cache.changes[name]:
            self._row_cache.rows.clear()
        return self._cursor.execute(STATEMENTS[name], params).rowcount

    def many(self, name: str, params: Iterable[Params]) -> int:
        rows = list(params)
        if not rows:
            return 0
        if self._row_cache.changes[name]:
            self._row_cache.rows.clear()
        if len(rows) == 1:
            self._cursor.execute(STATEMENTS[name], rows[0])
        else:
            self._cursor.executemany(STATEMENTS[name], rows)
        return self._cursor.rowcount

    def look(self, text: str, params: Params, shape: Callable[[Row], T], meter: Meter | None) -> list[T]:
        query = sql_files.for_psycopg(text).encode()
        if meter is None:
            return list(map(shape, self._cursor.execute(query, params).fetchall()))
        try:
            # A connection that streams cannot run another statement, so all rows must arrive before one is evaluated.
            with meter.interruptible(self.connection.cancel_safe):
                self._set_statement_timeout(meter.left)
                few = self._cursor.execute(b"SELECT * FROM (%b) AS few LIMIT %d" % (query, FEW + 1), params).fetchall()
                if len(few) <= FEW:
                    return _counted(few, shape, meter)
                rows = self._cursor.stream(query, params, binary=True, size=CHUNK)
                try:
                    return _counted(rows, shape, meter)
                finally:
                    rows.close()  # type: ignore[attr-defined] # a generator, which cancels the query when it is closed
        except pg.QueryCanceled:
            meter.expire()

    def release_pages(self) -> int:
        """Nothing to do: autovacuum frees pages."""
        return 0

    def _set_statement_timeout(self, seconds: float) -> None:
        if not 0 < self._timeout * NEAR <= seconds:
            self._timeout = max(0.001, seconds)
            self._cursor.execute(b"SET LOCAL statement_timeout = %d" % _millis(self._timeout))

    def stopped(self, problem: BaseException) -> bool:
        return isinstance(problem, pg.QueryCanceled)

    def savepoint(self, seconds: float | None = None) -> None:
        self._owned_before = set(self._owned)
        self._timeouts.append(self._timeout)
        if seconds is None:
            self._cursor.execute(b"SAVEPOINT ackwise")
            return
        self._timeout = seconds
        # Two statements without parameters go to the server together.
        self.connection.execute(b"SAVEPOINT ackwise; SET LOCAL statement_timeout = %d" % _millis(seconds))

    def keep(self) -> None:
        before = self._timeouts.pop()
        if self._timeout == before:
            self._cursor.execute(b"RELEASE ackwise")
            return
        self._timeout = before
        self.connection.execute(b"RELEASE ackwise; SET LOCAL statement_timeout = %d" % _millis(self._timeout))

    def undo(self) -> None:
        """Roll back to the savepoint and restore its timeout."""
        self._timeout = self._timeouts.pop()
        self._cursor.execute(b"ROLLBACK TO ackwise")
        self._cursor.execute(b"RELEASE ackwise")
        self._owned = self._owned_before
        self._row_cache.rows.clear()

    # locks

    def lock_queue(self, queue: int) -> None:
        self._row_cache.rows.clear()  # the turn that held the lock may have changed cached rows
        if not self.rows("lock_queue", {"queues": [queue]}):
            raise Outdated("the queue was deleted meanwhile")

    def lock_queues(self, queues: list[int]) -> None:
        self._row_cache.rows.clear()
        self.rows("lock_queue", {"queues": queues})

    def lock_queue_parts(self, queue: int) -> None:
        self._owned.update(row[0] for row in self.rows("lock_parts_of_queue", {"queue": queue}))

    def lock_group(self, grp: int, *, alone: bool) -> None:
        held = self._groups.get(grp)
        if held is None or (alone and not held):
            self.rows("lock_group_alone" if alone else "lock_group_shared", {"key": _GROUP_LOCKS | grp})
            self._groups[grp] = alone

    def gone(self, instance: str) -> bool:
        row = self.row("instance_silent", instance_lock(instance))
        return row is not None and bool(row[0])

    def lock_parts(self, parts: list[int], *, skip: bool = False) -> set[int]:
        wanted = [part for part in parts if part not in self._owned]
        if wanted:
            rows = self.rows("lock_parts_free" if skip else "lock_parts", {"parts": wanted})
            self._owned.update(row[0] for row in rows)
        return self._owned.intersection(parts)

    def lock_lease(self, no: int) -> Row | None:
        return self.row("lease_by_no", {"no": no})


def _counted(rows: Iterable[Row], shape: Callable[[Row], T], meter: Meter) -> list[T]:
    """The shaped rows. No comprehension: the error of the meter would keep its closure, and `shape` keeps rows."""
    shaped: list[T] = []
    count = meter.row
    for row in rows:
        count(row)
        shaped.append(shape(row))
    return shaped


def _millis(seconds: float) -> int:
    return max(1, round(seconds * 1000)) if seconds else 0
