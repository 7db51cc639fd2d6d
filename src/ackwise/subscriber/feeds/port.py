"""Protocols between the app and a transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ackwise.core.validation import Seconds
from ackwise.subscriber.dead_letter_hooks import DeadLetterHook, OnDead
from ackwise.subscriber.subscription import Subscription
from ackwise.subscriber.transport_delivery import TransportDelivery


class DeliverySink(Protocol):
    """Receives deliveries from a feed: the workers of one handler."""

    @property
    def room(self) -> int:
        """How many more deliveries the sink accepts now."""
        ...

    def put(self, delivery: TransportDelivery) -> None: ...

    def end_of_input(self) -> None:
        """Note that the feed puts nothing more."""
        ...

    @property
    def over(self) -> bool:
        """Whether the sink has ended: it settles no more deliveries."""
        ...

    def lost(self, delivery: TransportDelivery) -> None:
        """Note a lost lease: do not start the delivery's handler, or cancel it."""
        ...


class Feed(Protocol):
    """The messages of one subscription."""

    async def open(self) -> None:
        """Create the queue, group or consumer that the feed needs."""
        ...

    async def run(self, sink: DeliverySink) -> None:
        """Put deliveries into the sink until `stop`. Extend leases and send settlements until the sink is `over`."""
        ...

    def wake(self) -> None:
        """Note that the sink has room again."""
        ...

    def clock_moved(self) -> None:
        """Check leases: a manual clock was moved."""
        ...

    def stop(self) -> None:
        """Claim nothing more."""
        ...

    async def flush(self) -> None:
        """Send the settlements that are queued."""
        ...


class TransportLink(Protocol):
    """A connection of an app to a message transport."""

    makes_spans: bool
    """Whether `publish` makes a `send` span itself, if the app is traced."""

    def feed(self, subscription: Subscription) -> Feed: ...

    def dead_letter_hook(self, queue: str, name: str, function: OnDead) -> DeadLetterHook:
        """A reader of the queue's dead letters. Raises `BadInput` if the transport has none."""
        ...

    async def publish(
        self,
        queue: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        content_type: str,
        dedup_id: str | None,
        delay: Seconds | None,
        partition: str | None,
    ) -> str:
        """Publish a message. Returns its id."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the transport answered at the last check."""
        ...

    async def check(self) -> bool:
        """Check whether the transport answers."""
        ...

    async def stop_claims(self) -> None:
        """Make waiting claims return now."""
        ...

    async def close(self) -> None: ...
