"""The narrow bridge between a turn and a database: named statements in, rows out, and the locks a turn needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from ackwise.store.meter import Meter

Row = tuple[Any, ...]
Params = Mapping[str, Any]
T = TypeVar("T")


class Outdated(Exception):
    """What the turn read before it waited for a lock is no longer so: it is rolled back and run again."""


class Session(Protocol):
    """An open transaction. SQLite's lock methods do nothing: it has one writer."""

    @property
    def passed_over(self) -> int:
        """Not 0 if the turn left leases that ran out alone, because somebody else had their partitions just then;
        another number whenever more partitions are owned, as theirs may be among them."""
        ...

    @property
    def works_here(self) -> bool:
        """Whether queries run in the caller's thread, so that their time is the thread's own time."""
        ...

    def rows(self, name: str, params: Params = ...) -> list[Row]: ...

    def row(self, name: str, params: Params = ...) -> Row | None: ...

    def run(self, name: str, params: Params = ...) -> int:
        """Run a statement and say how many rows it changed."""
        ...

    def many(self, name: str, params: Iterable[Params]) -> int:
        """Run a statement for each and say how many rows all of them changed."""
        ...

    def look(self, text: str, params: Params, shape: Callable[[Row], T], meter: Meter | None) -> list[T]:
        """Rows of a generated SELECT for a pattern of the graph. Values are `:name`, as in all statements.

        The meter counts each row as it arrives. `shape` converts the row. `Overrun` ends the query.
        """
        ...

    def release_pages(self) -> int:
        """Give some unused pages of the database file back to the file system and return their number."""
        ...

    def stopped(self, problem: BaseException) -> bool:
        """Whether the database ended a statement because its time was up."""
        ...

    def savepoint(self, seconds: float | None = None) -> None:
        """With `seconds` PostgreSQL stops each statement after that time, until `keep` or `undo`."""
        ...

    def keep(self) -> None:
        """Keep what was done since the savepoint."""
        ...

    def undo(self) -> None:
        """Undo what was done since the savepoint."""
        ...

    def lock_graph(self) -> None:
        """Nobody else changes the graph until the turn ends."""
        ...

    def lock_queue(self, queue: int) -> None:
        """Nobody else makes lanes or groups of this queue until the turn ends."""
        ...

    def lock_queue_parts(self, queue: int) -> None:
        """Own every partition of a queue until the turn ends."""
        ...

    def lock_group(self, grp: int, *, alone: bool) -> None:
        """Claims share a group; one that excludes the whole queue takes it alone."""
        ...

    def gone(self, instance: str) -> bool:
        """Whether a broker is known to be dead, without waiting for its silence."""
        ...

    def lock_parts(self, parts: list[int], *, skip: bool = False) -> set[int]:
        """Own these partitions' rows until the turn ends; with `skip`, only those nobody else owns now."""
        ...

    def lock_lease(self, no: int) -> Row | None:
        """Own a lease until the turn ends: its row as it is now, or None where nobody else can have changed it."""
        ...


class Known(Protocol):
    """Which transaction ids were seen: 64-bit hashes to places."""

    def find(self, hashes: list[int]) -> dict[int, list[int]]:
        """Candidate places per hash; the caller verifies them against the stored id."""
        ...


class Dedupe(Known, Protocol):
    """The same, for who writes."""

    asks: bool
    """Whether finding means a question to a server."""

    def expect(self, hashes: list[int]) -> None:
        """`find` will be asked about these; a chance to look for all of them at once."""
        ...

    def add(self, hashes: list[int], place: int) -> None:
        """Remember hashes in this turn; their places count up from `place`. `find` was asked about them before."""
        ...

    def mark(self) -> None:
        """Remember where the turn stands, for `undo`."""
        ...

    def undo(self) -> None:
        """Drop the keys added since `mark`."""
        ...

    def forget(self, before: int, limit: int) -> int:
        """Drop keys that are out of every queue's window; how many went."""
        ...
