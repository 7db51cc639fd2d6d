"""Opens the link of a URL: to Ackwise or to NATS."""

from __future__ import annotations

import asyncio
import time

from ackwise.clock import Clock
from ackwise.connect import URL, connect_async
from ackwise.core.errors import BadStoreURL, StoreUnavailable
from ackwise.subscriber.feeds.broker_feed import BrokerLink
from ackwise.subscriber.feeds.port import TransportLink
from ackwise.wire.store_url import without_password

_FIRST, _LONGEST = 0.1, 4.0


async def open_link(url: URL, clock: Clock | None, patience: float, *, traced: bool = False) -> TransportLink:
    """Open a link. Retry for `patience` seconds while no server answers."""
    end, pause, tries = time.monotonic() + patience, _FIRST, 0
    while True:
        tries += 1
        try:
            return await _open(url, clock, traced)
        except BadStoreURL as problem:
            raise BadStoreURL(without_password(problem.message)) from None
        except StoreUnavailable as problem:
            if time.monotonic() + pause > end:
                text = without_password(problem.message)
                raise StoreUnavailable(f"{text} (tried {tries} times in {patience:g} seconds)") from None
        await asyncio.sleep(pause)
        pause = min(_LONGEST, 2 * pause)


async def _open(url: URL, clock: Clock | None, traced: bool) -> TransportLink:
    if (url if isinstance(url, str) else "".join(url[:1])).startswith(("nats://", "tls://")):
        from ackwise.subscriber.feeds.jetstream import NATSLink

        return await NATSLink.open(url)
    return BrokerLink(await connect_async(url, clock=clock, patience=0, tracing=traced))


def masked(url: URL) -> str:
    """The URL without passwords, for logs and errors."""
    return without_password(url if isinstance(url, str) else ", ".join(url))
