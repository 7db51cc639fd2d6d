"""Named statements on an apsw connection. Cursors are always exhausted: an open one pins the WAL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import apsw

from ackwise.store import instances, statements
from ackwise.store.memory import Memory
from ackwise.store.meter import Meter
from ackwise.store.session import Params, Row
from ackwise.store.sqlite import vacuum

STATEMENTS = statements.with_lists(
    statements.load(*statements.shared(), ("ackwise.store.sqlite", "sqlite.sql")),
    "IN (SELECT value FROM json_each(:ids))",
)
_NONE: Params = {}
T = TypeVar("T")
STEPS = 10_000
"""SQLite asks the meter after this many of its own instructions, several times a millisecond."""


class SQLiteSession:
    """A session in a single-writer database: locks are implied."""

    passed_over = 0
    works_here = True

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._execute = connection.execute

    def rows(self, name: str, params: Params = _NONE) -> list[Row]:
        return self._execute(STATEMENTS[name], params).fetchall()

    def row(self, name: str, params: Params = _NONE) -> Row | None:
        found = self._execute(STATEMENTS[name], params).fetchall()
        return found[0] if found else None

    def run(self, name: str, params: Params = _NONE) -> int:
        self._execute(STATEMENTS[name], params).fetchall()
        return self.connection.changes()

    def many(self, name: str, params: Iterable[Params]) -> int:
        statement, changed = STATEMENTS[name], self.connection.total_changes()
        for one in params:
            self._execute(statement, one).fetchall()
        return self.connection.total_changes() - changed

    def look(self, text: str, params: Params, shape: Callable[[Row], T], meter: Meter | None) -> list[T]:
        """Only a SELECT may be interrupted: SQLite rolls the whole transaction back when it interrupts a write."""
        if meter is None:
            return [shape(row) for row in self._execute(text, params)]
        cursor: apsw.Cursor | None = None
        self.connection.set_progress_handler(meter.is_over, STEPS)
        try:
            kept: list[T] = []
            count = meter.row
            cursor = self._execute(text, params)
            for row in cursor:
                count(row)
                kept.append(shape(row))
            return kept
        except apsw.InterruptError:
            meter.expire()
        finally:
            self.connection.set_progress_handler(None)
            if cursor is not None:
                cursor.close(True)

    def release_pages(self) -> int:
        return vacuum.release(self.connection)

    def stopped(self, problem: BaseException) -> bool:
        return False

    def savepoint(self, seconds: float | None = None) -> None:
        self._execute("SAVEPOINT ackwise").fetchall()

    def keep(self) -> None:
        self._execute("RELEASE ackwise").fetchall()

    def undo(self) -> None:
        self._execute("ROLLBACK TO ackwise").fetchall()
        self._execute("RELEASE ackwise").fetchall()

    def lock_graph(self) -> None:
        pass

    def lock_queue(self, queue: int) -> None:
        pass

    def lock_queue_parts(self, queue: int) -> None:
        pass

    def lock_group(self, grp: int, *, alone: bool) -> None:
        pass

    def gone(self, instance: str) -> bool:
        return instances.gone_here(instance)

    def lock_parts(self, parts: list[int], *, skip: bool = False) -> set[int]:
        return set(parts)

    def lock_lease(self, no: int) -> Row | None:
        return None


class WriterSession(SQLiteSession):
    """The writer's session: it is the only one that changes the catalogue, so it remembers rows of it between turns."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        self._memory = Memory()

    def row(self, name: str, params: Params = _NONE) -> Row | None:
        if not self._memory.keeps(name):
            return super().row(name, params)
        found = self._memory.get(name, params)
        if found is None:
            found = super().row(name, params)
            if found is not None:
                self._memory.put(name, params, found)
        return found

    def run(self, name: str, params: Params = _NONE) -> int:
        self._memory.keeps(name)
        return super().run(name, params)

    def undo(self) -> None:
        self._memory.forget()
        super().undo()

    def forget(self) -> None:
        """Another process wrote, or a turn was rolled back."""
        self._memory.forget()
