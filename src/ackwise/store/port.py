"""The store port: `prepare` runs commands, `ask` answers queries, `read` returns segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from ackwise.clock import Clock
from ackwise.core.commands import Command
from ackwise.core.events import EventStream
from ackwise.core.lane_range import LaneRange
from ackwise.core.queries import Query
from ackwise.engine.extensions import Extension, Extensions
from ackwise.engine.segment import Segment
from ackwise.engine.statement_meter import Meter

R = TypeVar("R")
Result = Any
"""The answer that a command names, or the `AckwiseError` that refuses it. The commands of a turn name several types."""

SHORT_READ = 1000
"""A local store reads a claim of at most this many messages without waiting for other readers."""


class PreparedTurn(Protocol):
    """A turn whose statements have run but are not committed. `commit` waits for the disk: call it in any thread."""

    @property
    def results(self) -> list[Result]: ...

    @property
    def woken(self) -> dict[str, int]:
        """Queues in which messages may have become claimable, with their approximate number."""
        ...

    @property
    def offered(self) -> set[str]:
        """Queues in which the turn made messages claimable that were not claimable before."""
        ...

    @property
    def nothing_to_commit(self) -> bool:
        """Whether `commit` returns at once: the turn wrote nothing, or is already committed."""
        ...

    def commit(self) -> None: ...

    def abandon(self) -> None:
        """Roll back and free the writer. Does nothing after `commit` was called in any thread."""
        ...


class Prepare(Protocol):
    """Runs the statements of a turn."""

    def __call__(self, commands: Sequence[Command], shard: int = 0) -> PreparedTurn: ...


class ReadSegments(Protocol):
    """The segments of each range (lane, lo, hi), without pruned segments.

    With `room` only the first segments of each range that fit this many bytes. At least one fits.
    """

    def __call__(self, ranges: Sequence[LaneRange], room: int | None = None) -> list[list[Segment]]: ...


class Store(Protocol):
    """A database with queues. Thread-safe.

    Every turn calls `busy` and `prepare`, every claim calls `read`. As attributes they may be functions of a writer or
    of a cache.
    """

    shards: int
    """How many turns may run at once."""

    local: bool
    """Whether the store needs no network: an event loop may then run the statements of a turn itself."""

    name: str
    """The file or the database, without a password."""

    schema: int
    """Version of the tables."""

    events: EventStream
    """Events of this store and its broker. Listeners subscribe to this stream."""

    clock: Clock
    """The time of the store. A store with a server follows the server's clock."""

    instance: str
    """Name of the broker that uses this store."""

    on_change: Callable[[], None] | None
    """Called in any thread after another process committed. A store without notifications never calls it."""

    extensions: Extensions

    busy: Callable[[], bool]
    """Whether another thread holds the writer. An event loop must not wait for it: its fsync may be slow."""

    prepare: Prepare
    """The broker has validated the commands (`core.command_checks`)."""

    read: ReadSegments

    def add(self, extension: Extension) -> None:
        """Add the commands of an extension, and its tables if the database lacks them, before the first turn."""
        ...

    def ask(self, query: Query[R], meter: Meter | None = None, *, long: bool = False) -> R:
        """Answer a query on one snapshot of the committed state.

        A `meter` bounds the query: `Overrun` names the exceeded limit. A `long` query has separate
        connections.
        """
        ...

    def changed(self) -> bool:
        """Whether another process committed since the last call. Cheap enough to call often."""
        ...

    def maintain(self) -> None:
        """Maintain the database itself between turns, such as a checkpoint."""
        ...

    def close(self) -> None: ...
