"""Transport protocols: how the client sends commands to a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

from ackwise.core.answers import Extended, Handed, Settled
from ackwise.core.commands import Claim, Command, Extend, Settle
from ackwise.core.errors import AckwiseError
from ackwise.core.events import EventStream
from ackwise.core.queries import Query

A = TypeVar("A")


class AsyncTransport(Protocol):
    """Sends commands and queries to a broker, for asyncio. Refusals raise an `AckwiseError`."""

    async def send(self, command: Command[A]) -> A: ...

    async def send_all(self, commands: Sequence[Extend]) -> list[Extended | AckwiseError]:
        """Send several extensions in one request. A refusal is the answer of its command."""
        ...

    async def claim(self, command: Claim, wait: float) -> Handed:
        """Claim messages, waiting up to `wait` seconds for the first."""
        ...

    async def settle_and_claim(self, settle: Settle, claim: Claim, wait: float) -> tuple[list[Settled], Handed]:
        """Settle and claim in one turn of the broker."""
        ...

    async def claim_ahead(self, settle: Settle | None, claim: Claim, count: int) -> tuple[list[Settled], list[Handed]]:
        """Settle, and claim up to `count` batches with one lease each, in one turn. Never waits.

        With a key the call may be repeated: the batches are the claims `key/0`, `key/1` …
        """
        ...

    async def ask(self, query: Query[A]) -> A: ...

    def now(self) -> int:
        """The anchored clock of the store, in microseconds. Deadlines of leases are instants of it."""
        ...

    def wall_of(self, instant: int) -> int:
        """An instant of the anchored clock as people read it."""
        ...

    @property
    def repeats(self) -> int:
        """Number of answered calls that were repeated: a verdict `already` may come from an earlier try."""
        ...

    @property
    def events(self) -> EventStream | None:
        """The events of a store in this process. None if the store is behind a server."""
        ...

    def stop_claims(self) -> Awaitable[None] | None:
        """Stop claiming. Waiting claims return at once."""
        ...

    async def drain(self, grace: float) -> int:
        """Stop claiming, wait up to `grace` seconds for settlements, release the rest. Returns how many it released."""
        ...

    async def close(self) -> None: ...


class Transport(Protocol):
    """Sends commands and queries to a broker, for threads. Refusals raise an `AckwiseError`."""

    def send(self, command: Command[A]) -> A: ...

    def send_all(self, commands: Sequence[Extend]) -> list[Extended | AckwiseError]:
        """Send several extensions in one request. A refusal is the answer of its command."""
        ...

    def claim(self, command: Claim, wait: float) -> Handed:
        """Claim messages, waiting up to `wait` seconds for the first."""
        ...

    def settle_and_claim(self, settle: Settle, claim: Claim, wait: float) -> tuple[list[Settled], Handed]:
        """Settle and claim in one turn of the broker."""
        ...

    def claim_ahead(self, settle: Settle | None, claim: Claim, count: int) -> tuple[list[Settled], list[Handed]]:
        """Settle, and claim up to `count` batches with one lease each, in one turn. Never waits."""
        ...

    def ask(self, query: Query[A]) -> A: ...

    def now(self) -> int:
        """The anchored clock of the store, in microseconds. Deadlines of leases are instants of it."""
        ...

    def wall_of(self, instant: int) -> int:
        """An instant of the anchored clock as people read it."""
        ...

    @property
    def repeats(self) -> int:
        """Number of answered calls that were repeated."""
        ...

    @property
    def events(self) -> EventStream | None:
        """The events of a store in this process. None if the store is behind a server."""
        ...

    def stop_claims(self) -> None:
        """Stop claiming. Waiting claims return at once."""
        ...

    def drain(self, grace: float) -> int:
        """Stop claiming, wait up to `grace` seconds for settlements, release the rest. Returns how many it released."""
        ...

    def close(self) -> None: ...
