"""Named statements on a psycopg connection, and the locks that let several brokers share one database."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import TypeVar

from psycopg import errors as pg

from ackwise.store import statements
from ackwise.store.memory import CATALOGUE, Memory
from ackwise.store.meter import Meter
from ackwise.store.postgres.connection import Connection
from ackwise.store.session import Outdated, Params, Row

STATEMENTS = {
    name: statements.for_psycopg(text).encode()
    for name, text in statements.with_lists(
        statements.load(*statements.shared(), ("ackwise.store.postgres", "postgres.sql")),
        "= ANY(CAST(translate(:ids, '[]', '{}') AS bigint[]))",
    ).items()
}
_GROUP_LOCKS = 0x41434B57 << 32
_INSTANCE_LOCKS = 0x41434B49 << 32
_NONE: Params = {}
MOST_NAMES = 50_000
T = TypeVar("T")
FEW = 32
"""Up to this many rows come at once, by a prepared statement. More rows are streamed, so that the meter counts them."""
CHUNK = 50
NEAR = 0.9
"""A timeout is set anew when the time left has shrunk below this part of it."""


def instance_lock(instance: str) -> dict[str, int]:
    """What a broker holds as long as its connection for news lives, which is known to end when its process does."""
    return {"key": _INSTANCE_LOCKS | zlib.crc32(instance.encode())}


class PostgresSession:
    """One connection. A row lock lasts until the transaction ends, or the savepoint it was taken after is undone."""

    works_here = False

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._cursor = connection.cursor(binary=True)
        self._groups: dict[int, bool] = {}
        self._owned: set[int] = set()
        self._owned_before: set[int] = set()
        self._left_some = False
        self._memory = Memory(CATALOGUE - {"part_by_id"} | {"lane_of_part"}, ("lane_",))
        """For one turn. A lane's row is only read when its partition is owned, so nobody else changes it either."""
        self._names: dict[int, Row] = {}
        """What partitions are called, for ever: an id is never used again."""
        self._timeout = 0.0
        """Seconds after which PostgreSQL stops a statement of this transaction; 0: never."""
        self._timeouts: list[float] = []
        """The timeout at each savepoint."""

    def begin(self, how: bytes = b"BEGIN") -> None:
        self._memory.forget()
        self._timeout = 0.0
        self._timeouts.clear()
        self._owned.clear()
        self._groups.clear()
        self._left_some = False
        self._cursor.execute(how)

    def end(self, how: bytes = b"COMMIT") -> str:
        """Commit or roll back, and say which of the two PostgreSQL did."""
        return self._cursor.execute(how).statusmessage or ""

    @property
    def passed_over(self) -> int:
        return 1 + len(self._owned) if self._left_some else 0

    def wait_at_most(self, seconds: float) -> None:
        """Wait no longer for each lock, until the transaction ends."""
        self.rows("lock_timeout", {"timeout": f"{max(1, round(seconds * 1000))}ms"})

    def rows(self, name: str, params: Params = _NONE) -> list[Row]:
        found = self._cursor.execute(STATEMENTS[name], params).fetchall()
        if found and name in ("leases_expired", "leases_expired_in_group"):
            return self._own_expired([row[0] for row in found], params)
        return found

    def _own_expired(self, leases: list[int], params: Params) -> list[Row]:
        """Those leases that nobody else works on, partitions before leases as everybody locks them, without waiting."""
        parts: dict[int, set[int]] = {lease: set() for lease in leases}
        for lease, part in self.rows("leases_parts", {"leases": leases}):
            parts[lease].add(part)
        owned = self.lock_parts(sorted(set().union(*parts.values())), skip=True)
        ours = [lease for lease in leases if parts[lease] <= owned]
        found = self.rows("leases_expired_lock", {"leases": ours, "now": params["now"]}) if ours else []
        self._left_some = self._left_some or len(found) < len(leases)
        return found

    def row(self, name: str, params: Params = _NONE) -> Row | None:
        if name == "part_by_id":
            return self._name(params)
        keeps = self._memory.keeps(name)
        known = self._memory.get(name, params) if keeps else None
        if known is not None:
            return known
        found = self._cursor.execute(STATEMENTS[name], params).fetchall()
        if found and keeps:
            self._memory.put(name, params, found[0])
        return found[0] if found else None

    def _name(self, params: Params) -> Row | None:
        part = params["id"]
        if part not in self._names:
            found = self.rows("part_by_id", params)
            if not found:
                return None
            if len(self._names) >= MOST_NAMES:
                self._names.clear()
            self._names[part] = found[0]
        return self._names[part]

    def remember(self, name: str, params: Params, row: Row) -> None:
        """A row that was read together with others."""
        self._memory.put(name, params, row)

    def run(self, name: str, params: Params = _NONE) -> int:
        self._memory.keeps(name)
        return self._cursor.execute(STATEMENTS[name], params).rowcount

    def many(self, name: str, params: Iterable[Params]) -> int:
        rows = list(params)
        if not rows:
            return 0
        self._memory.keeps(name)
        if len(rows) == 1:
            self._cursor.execute(STATEMENTS[name], rows[0])
        else:
            self._cursor.executemany(STATEMENTS[name], rows)
        return self._cursor.rowcount

    def look(self, text: str, params: Params, shape: Callable[[Row], T], meter: Meter | None) -> list[T]:
        query = statements.for_psycopg(text).encode()
        if meter is None:
            return list(map(shape, self._cursor.execute(query, params).fetchall()))
        try:
            # A connection that streams runs nothing else, so all rows must arrive before the first is evaluated.
            with meter.interruptible(self.connection.cancel_safe):
                self._stop_after(meter.left)
                few = self._cursor.execute(b"SELECT * FROM (%b) AS few LIMIT %d" % (query, FEW + 1), params).fetchall()
                if len(few) <= FEW:
                    return [_counted(row, shape, meter) for row in few]
                rows = self._cursor.stream(query, params, binary=True, size=CHUNK)
                try:
                    return [_counted(row, shape, meter) for row in rows]
                finally:
                    rows.close()  # type: ignore[attr-defined] # a generator, which cancels the query when it is closed
        except pg.QueryCanceled:
            meter.expire()

    def release_pages(self) -> int:
        """Nothing to do: autovacuum frees pages."""
        return 0

    def _stop_after(self, seconds: float) -> None:
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
        """Undo also restores the timeout of the savepoint."""
        self._timeout = self._timeouts.pop()
        self._cursor.execute(b"ROLLBACK TO ackwise")
        self._cursor.execute(b"RELEASE ackwise")
        self._owned = self._owned_before
        self._memory.forget()

    # locks

    def lock_graph(self) -> None:
        self.rows("lock_graph")

    def lock_queue(self, queue: int) -> None:
        self._memory.forget()  # what was read before may have been changed by who had the lock
        if not self.rows("lock_queue", {"queues": [queue]}):
            raise Outdated("the queue was deleted meanwhile")

    def lock_queues(self, queues: list[int]) -> None:
        self._memory.forget()
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

    def owns(self, part: int) -> bool:
        return part in self._owned


def _counted(row: Row, shape: Callable[[Row], T], meter: Meter) -> T:
    meter.row(row)
    return shape(row)


def _millis(seconds: float) -> int:
    return max(1, round(seconds * 1000)) if seconds else 0
