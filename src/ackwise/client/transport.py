"""What the client stands on: something that carries commands to a broker and brings the answers back."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from ackwise.core.answers import Handed, Settled
from ackwise.core.commands import Claim, Command, Settle
from ackwise.core.queries import Query


class AsyncTransport(Protocol):
    """A broker as seen from asyncio. A refusal is raised as an `AckwiseError`."""

    async def send(self, command: Command) -> Any: ...

    async def claim(self, command: Claim, wait: float) -> Handed:
        """Wait up to `wait` seconds for something to claim."""
        ...

    async def settle_and_claim(self, settle: Settle, claim: Claim, wait: float) -> tuple[list[Settled], Handed]:
        """Settle what is finished and claim what is next, in one turn."""
        ...

    async def claim_ahead(self, settle: Settle | None, claim: Claim, count: int) -> tuple[list[Settled], list[Handed]]:
        """Settle what is finished and claim up to `count` batches, a lease each, in one turn. Never waits.

        With a key both may be asked for again: the batches are the claims `key/0`, `key/1` ...
        """
        ...

    async def ask(self, query: Query) -> Any: ...

    def now(self) -> int: ...

    @property
    def repeats(self) -> int:
        """How many calls were answered that an earlier try may have done: `already` may be their own then."""
        ...

    def stop_claims(self) -> Awaitable[None] | None:
        """Claim nothing more; polls that wait are answered now."""
        ...

    async def drain(self, grace: float) -> int:
        """Hand out nothing more, wait for holders to finish, release the rest; how many messages that were."""
        ...

    async def close(self) -> None: ...


class Transport(Protocol):
    """A broker as seen from threads. A refusal is raised as an `AckwiseError`."""

    def send(self, command: Command) -> Any: ...

    def claim(self, command: Claim, wait: float) -> Handed:
        """Wait up to `wait` seconds for something to claim."""
        ...

    def settle_and_claim(self, settle: Settle, claim: Claim, wait: float) -> tuple[list[Settled], Handed]:
        """Settle what is finished and claim what is next, in one turn."""
        ...

    def claim_ahead(self, settle: Settle | None, claim: Claim, count: int) -> tuple[list[Settled], list[Handed]]:
        """Settle what is finished and claim up to `count` batches, a lease each, in one turn. Never waits."""
        ...

    def ask(self, query: Query) -> Any: ...

    def now(self) -> int: ...

    def stop_claims(self) -> None:
        """Claim nothing more; polls that wait are answered now."""
        ...

    def drain(self, grace: float) -> int:
        """Hand out nothing more, wait for holders to finish, release the rest; how many messages that were."""
        ...

    def close(self) -> None: ...
