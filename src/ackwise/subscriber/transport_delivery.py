"""Delivery protocol: one delivery of a message, of any transport."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from ackwise.core.settlement import Outcome
from ackwise.core.validation import Seconds


class Undecodable(Exception):
    """The payload cannot be decoded."""


Ask = Outcome | Exception
"""An outcome, or an exception. An exception other than `Retry`, `Reject` and `Undecodable` means a retry."""


class TransportDelivery(Protocol):
    """One delivery of a message by a transport."""

    @property
    def id(self) -> str: ...

    @property
    def span_key(self) -> str | None:
        """The delivery id by which a settlement finds the span of its handler. None: it needs none."""
        ...

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
        """When the lease expires. None if the message was acked at delivery."""
        ...

    @property
    def settleable(self) -> bool: ...

    async def settle(self, ask: Ask) -> bool:
        """Settle the delivery. False if it was settled before or its lease has expired."""
        ...

    def settle_soon(self, ask: Ask) -> None:
        """Settle without waiting for the answer. The feed sends it together with others."""
        ...

    async def extend(self, duration: Seconds | None) -> bool:
        """Extend the lease. False if it is lost."""
        ...

    def stop_keeping(self) -> None:
        """Stop extending the lease: the handler has ended and did not settle the message."""
        ...
