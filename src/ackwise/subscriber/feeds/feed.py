"""What the app asks of a transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ackwise.core.limits import Seconds
from ackwise.subscriber.handover import Handover
from ackwise.subscriber.subscription import Subscription


class Sink(Protocol):
    """Where a feed puts what it got: the workers of one handler."""

    @property
    def room(self) -> int:
        """How many more it wants now."""
        ...

    def put(self, handover: Handover) -> None: ...

    def no_more(self) -> None:
        """Nothing will be put any more: the feed was stopped, and nothing is on its way."""
        ...

    @property
    def over(self) -> bool:
        """Nothing will be settled through it any more."""
        ...

    def lost(self, handover: Handover) -> None:
        """Somebody else will have it: do not start it, and stop it if it runs."""
        ...


class Feed(Protocol):
    """The messages of one subscription."""

    async def open(self) -> None:
        """See that there is something to be fed from."""
        ...

    async def run(self, sink: Sink) -> None:
        """Feed the sink until `stop`; keep what it holds alive and settle what it has done until it is `over`."""
        ...

    def wake(self) -> None:
        """There is room again."""
        ...

    def look(self) -> None:
        """The clock was moved: leases may be due."""
        ...

    def stop(self) -> None:
        """Take nothing more."""
        ...

    async def flush(self) -> None:
        """Send what was settled and nobody waits for."""
        ...


class Link(Protocol):
    """A connection to whatever carries messages."""

    def feed(self, subscription: Subscription) -> Feed: ...

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
        """The id of the message."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it answers, as far as is known."""
        ...

    async def check(self) -> bool:
        """Ask."""
        ...

    async def stop_claims(self) -> None:
        """Polls that wait come back now."""
        ...

    async def close(self) -> None: ...
