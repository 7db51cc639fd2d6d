"""The store port: `prepare` runs commands, `ask` answers queries, `read` returns segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from ackwise.clock import Clock
from ackwise.core.answers import Result
from ackwise.core.commands import Command
from ackwise.core.events import EventStream
from ackwise.core.queries import Query
from ackwise.engine.extensions import Extensions
from ackwise.engine.segment import ReadSegments
from ackwise.engine.statement_meter import Meter

R = TypeVar("R")

SHORT_READ = 1000
"""A local store reads a claim of at most this many messages without waiting for other readers."""


class StoreTraits(msgspec.Struct, frozen=True):
    """Properties of an open store that never change."""

    name: str
    """The file or the database, without a password."""
    instance: str
    """Name of the broker that uses the store."""
    shards: int
    """How many turns may run at once."""
    schema: int
    """Version of the tables."""
    local: bool
    """Whether the store needs no network: an event loop may then read short claims itself."""


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


class Store(Protocol):
    """A database with queues. Thread-safe.

    Every turn calls `busy` and `prepare`, every claim calls `read`. As attributes they may be functions of a writer or
    of a cache.
    """

    traits: StoreTraits

    events: EventStream
    """Events of this store and its broker. Listeners subscribe to this stream."""

    clock: Clock
    """The time of the store. A store with a server follows the server's clock."""

    on_change: Callable[[], None] | None
    """Called in any thread after another process committed. A store without notifications never calls it."""

    extensions: Extensions
    """Commands, duties and tables beside those of queues. Add extensions before the first turn."""

    busy: Callable[[], bool]
    """Whether a turn would wait: for another thread that holds the writer, or for the network. An event loop must not
    wait. The fsync of the other thread may be slow."""

    prepare: Prepare
    """The broker has validated the commands (`core.command_checks`)."""

    read: ReadSegments

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
