"""One attempt at one message, as a transport hands it over."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from ackwise.core.limits import Seconds
from ackwise.core.settlement import Outcome


class Undecodable(Exception):
    """Nobody can read the payload."""


Ask = Outcome | Exception
"""An outcome, or an exception that chooses one: `Retry`, `Reject`, `Undecodable`, or any other, which is a retry."""


class Handover(Protocol):
    """What a message needs of its transport."""

    @property
    def id(self) -> str: ...

    @property
    def queue(self) -> str: ...

    @property
    def body(self) -> bytes: ...

    @property
    def headers(self) -> dict[str, str]: ...

    @property
    def attempt(self) -> int: ...

    @property
    def enqueued_at(self) -> datetime: ...

    @property
    def deadline(self) -> datetime | None:
        """None where there is none: it was acked at delivery."""
        ...

    @property
    def settleable(self) -> bool: ...

    async def settle(self, ask: Ask) -> bool:
        """Whether this settled it; not if it was settled before, nor if its time was over."""
        ...

    def settle_soon(self, ask: Ask) -> None:
        """The same for who does not wait: it is sent together with others."""
        ...

    async def extend(self, duration: Seconds | None) -> bool:
        """Whether it is held longer now."""
        ...

    def let_go(self) -> None:
        """Its handler is through and did not settle it: it is not kept alive any more."""
        ...
