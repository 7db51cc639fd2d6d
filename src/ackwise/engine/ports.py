"""Ports `Session` and `Dedupe`: the database operations that the engine uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from ackwise.core.ids import GroupId, LeaseNo
from ackwise.engine.statement_meter import Meter

Row = tuple[Any, ...]
Params = Mapping[str, Any]
T = TypeVar("T")


class Outdated(Exception):
    """Rows changed while the turn waited for a lock. The store rolls the turn back and repeats it."""


class Session(Protocol):
    """An open transaction. SQLite has one writer, so its lock methods do nothing."""

    @property
    def passed_over(self) -> int:
        """Changes whenever the turn locks more partitions after it skipped expired leases. 0 if it skipped none.

        A turn skips an expired lease while another turn holds one of its partitions.
        """
        ...

    @property
    def works_here(self) -> bool:
        """Whether queries run in the caller's thread. Then their time is the thread's CPU time."""
        ...

    def rows(self, name: str, params: Params = ...) -> list[Row]: ...

    def row(self, name: str, params: Params = ...) -> Row | None: ...

    def run(self, name: str, params: Params = ...) -> int:
        """Run a statement and return the number of changed rows."""
        ...

    def many(self, name: str, params: Iterable[Params]) -> int:
        """Run a statement once per parameter set and return the number of changed rows."""
        ...

    def look(self, text: str, params: Params, shape: Callable[[Row], T], meter: Meter | None) -> list[T]:
        """Rows of a generated SELECT. Values are `:name`, as in all statements.

        The meter counts each row as it arrives. `shape` converts the row. `Overrun` ends the query.
        """
        ...

    def release_pages(self) -> int:
        """Return some unused pages of the database file to the file system. Returns their number."""
        ...

    def stopped(self, problem: BaseException) -> bool:
        """Whether the database stopped a statement because its time was over."""
        ...

    def savepoint(self, seconds: float | None = None) -> None:
        """Open a savepoint. With `seconds`, PostgreSQL stops each statement after that time, until `keep` or `undo`."""
        ...

    def keep(self) -> None:
        """Release the savepoint and keep the changes since."""
        ...

    def undo(self) -> None:
        """Roll back to the savepoint."""
        ...

    def lock_queue(self, queue: int) -> None:
        """Lock a queue until the turn ends: no other turn creates its lanes or groups."""
        ...

    def lock_queue_parts(self, queue: int) -> None:
        """Lock every partition of a queue until the turn ends."""
        ...

    def lock_group(self, grp: GroupId, *, alone: bool) -> None:
        """Lock a group until the turn ends. Claims share this lock unless they want the whole queue `alone`."""
        ...

    def gone(self, instance: str) -> bool:
        """Whether the database knows that a broker is dead, before its heartbeat times out."""
        ...

    def lock_parts(self, parts: list[int], *, skip: bool = False) -> set[int]:
        """Lock partitions until the turn ends and return the locked ones. `skip` leaves out those of other turns."""
        ...

    def lock_lease(self, no: LeaseNo) -> Row | None:
        """Lock a lease until the turn ends and return its current row. None if no other turn can have changed it."""
        ...


class Known(Protocol):
    """Index of transaction ids: 64-bit hashes to places."""

    def find(self, hashes: list[int]) -> dict[int, list[int]]:
        """Candidate places per hash. The caller compares them with the stored ids."""
        ...


class Dedupe(Known, Protocol):
    """The index of transaction ids as a turn writes it."""

    asks: bool
    """Whether `find` costs a round trip to a server."""

    def expect(self, hashes: list[int]) -> None:
        """Prefetch hashes that later calls of `find` ask for."""
        ...

    def add(self, hashes: list[int], place: int) -> None:
        """Add hashes whose places count up from `place`. Call `find` for them first."""
        ...

    def mark(self) -> None:
        """Mark a point to which `undo` returns."""
        ...

    def undo(self) -> None:
        """Drop the hashes added since `mark`."""
        ...

    def forget(self, before: int, limit: int) -> int:
        """Drop up to `limit` hashes from before an instant and return their number."""
        ...
