"""Registry of queries: the function that answers each query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar, cast

from ackwise.core.errors import BadInput
from ackwise.core.queries import Query
from ackwise.engine.ports import Known, Session
from ackwise.engine.statement_meter import Meter

Q = TypeVar("Q", bound=Query)
R = TypeVar("R")


class Snapshot(NamedTuple):
    """Snapshot for a query: one read transaction at one instant."""

    session: Session
    now: int
    """The anchored clock."""
    shift: int
    """Microseconds that the anchored clock is ahead of the wall clock."""
    instance: str
    """Name of the broker that asks."""
    known: Known
    """The transaction ids that the reader can look up."""
    seed: bytes
    """Key of the hashes of transaction ids."""
    meter: Meter | None = None
    """Counts what a metered query uses."""

    @property
    def wall(self) -> int:
        """The wall clock."""
        return self.now - self.shift

    def shown(self, instant: int) -> int:
        """An instant of the anchored clock as people read it: answers contain instants of the wall clock only."""
        return instant - self.shift


class QueryFunction(NamedTuple, Generic[R]):
    """The function that answers a query with rows of the type `R`."""

    answer: Callable[[Snapshot, Query], R]
    reads_ledger: bool
    """Whether the store must first write the counts that it keeps in memory."""


_FUNCTIONS: dict[type[Query], QueryFunction[object]] = {}


def answers(
    kind: type[Q], *, reads_ledger: bool = False
) -> Callable[[Callable[[Snapshot, Q], R]], Callable[[Snapshot, Q], R]]:
    """Register the decorated function as the answer to a query."""

    def register(function: Callable[[Snapshot, Q], R]) -> Callable[[Snapshot, Q], R]:
        # The registry finds a function by the type of the query, so the function never gets another one.
        _FUNCTIONS[kind] = QueryFunction(cast("Callable[[Snapshot, Query], object]", function), reads_ledger)
        return function

    return register


def function_of(query: Query[R]) -> QueryFunction[R]:
    """The function that answers a query. Validates the query first."""
    function = _FUNCTIONS.get(type(query))
    if function is None:
        raise BadInput(f"{type(query).__name__} is not a query that this store answers")
    query.check()
    return cast("QueryFunction[R]", function)
