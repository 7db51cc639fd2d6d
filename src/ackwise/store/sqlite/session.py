"""Named statements on apsw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import apsw

from ackwise.engine.extensions import Extension
from ackwise.engine.ports import Params, Row
from ackwise.engine.statement_meter import Meter
from ackwise.store import broker_instances, sql_files
from ackwise.store.row_cache import RowCache
from ackwise.store.sqlite import vacuum


def _load(files: Sequence[sql_files.File], overrides: Sequence[sql_files.File] = ()) -> dict[str, str]:
    return sql_files.with_lists(sql_files.load(files, overrides), "IN (SELECT value FROM json_each(:ids))")


STATEMENTS = _load(sql_files.shared(), [("ackwise.store.sqlite", "sqlite.sql")])
_NONE: Params = {}
T = TypeVar("T")
STEPS = 10_000
"""SQLite calls the meter after this many virtual machine instructions, several times a millisecond."""


def add_statements(extension: Extension) -> None:
    """Add the named statements of an extension, for all stores of this process."""
    sql_files.add(STATEMENTS, _load([(extension.tables, "statements.sql")]))


class SQLiteSession:
    """Statements on one connection. Lock methods do nothing: SQLite has one writer."""

    passed_over = 0
    works_here = True

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._execute = connection.execute

    def rows(self, name: str, params: Params = _NONE) -> list[Row]:
        return self._execute(STATEMENTS[name], params).fetchall()

    def row(self, name: str, params: Params = _NONE) -> Row | None:
        rows = self._execute(STATEMENTS[name], params).fetchall()
        return rows[0] if rows else None

    def run(self, name: str, params: Params = _NONE) -> int:
        self._execute(STATEMENTS[name], params).fetchall()
        return self.connection.changes()

    def many(self, name: str, params: Iterable[Params]) -> int:
        statement, before = STATEMENTS[name], self.connection.total_changes()
        for row_params in params:
            self._execute(statement, row_params).fetchall()
        return self.connection.total_changes() - before

    def look(self, text: str, params: Params, shape: Callable[[Row], T], meter: Meter | None) -> list[T]:
        """Run a SELECT under a meter. Only a SELECT may be interrupted: an interrupted write ends the transaction."""
        if meter is None:
            return [shape(row) for row in self._execute(text, params)]
        cursor: apsw.Cursor | None = None
        self.connection.set_progress_handler(meter.is_over, STEPS)
        try:
            shaped: list[T] = []
            count = meter.row
            cursor = self._execute(text, params)
            for row in cursor:
                count(row)
                shaped.append(shape(row))
            return shaped
        except apsw.InterruptError:
            meter.expire()
        finally:
            self.connection.set_progress_handler(None)
            if cursor is not None:
                cursor.close(True)

    def release_pages(self) -> int:
        return vacuum.release_pages(self.connection)

    def stopped(self, problem: BaseException) -> bool:
        return False

    def savepoint(self, seconds: float | None = None) -> None:
        self._execute("SAVEPOINT ackwise").fetchall()

    def keep(self) -> None:
        self._execute("RELEASE ackwise").fetchall()

    def undo(self) -> None:
        self._execute("ROLLBACK TO ackwise").fetchall()
        self._execute("RELEASE ackwise").fetchall()

    def lock_queue(self, queue: int) -> None:
        pass

    def lock_queue_parts(self, queue: int) -> None:
        pass

    def lock_group(self, grp: int, *, alone: bool) -> None:
        pass

    def gone(self, instance: str) -> bool:
        return broker_instances.is_dead(instance)

    def lock_parts(self, parts: list[int], *, skip: bool = False) -> set[int]:
        return set(parts)

    def lock_lease(self, no: int) -> Row | None:
        return None


class WriterSession(SQLiteSession):
    """The writer's session. It caches catalog rows between turns, because only the writer changes them."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        self._row_cache = RowCache()

    def row(self, name: str, params: Params = _NONE) -> Row | None:
        cache = self._row_cache
        if name not in cache.names:
            if cache.changes[name]:
                cache.rows.clear()
            return super().row(name, params)
        row = cache.rows.get((name, *params.values()))
        if row is None:
            row = super().row(name, params)
            if row is not None:
                cache.put(name, params, row)
        return row

    def run(self, name: str, params: Params = _NONE) -> int:
        if self._row_cache.changes[name]:
            self._row_cache.rows.clear()
        return super().run(name, params)

    def undo(self) -> None:
        self.clear_cache()
        super().undo()

    def clear_cache(self) -> None:
        """Clear the cache after a rollback, or after another process wrote."""
        self._row_cache.rows.clear()
