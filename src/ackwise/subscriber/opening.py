"""A URL becomes a link."""

from __future__ import annotations

import asyncio
import time

from ackwise.connect import URL, connect_async
from ackwise.core.errors import BadInput, BadStoreURL, StoreUnavailable
from ackwise.store.clock import Clock
from ackwise.store.url import without_password
from ackwise.subscriber.feeds.broker import BrokerLink
from ackwise.subscriber.feeds.feed import Link

_FIRST, _LONGEST = 0.1, 4.0


async def open_link(url: URL, clock: Clock | None, patience: float) -> Link:
    """Tried again for `patience` seconds while nobody answers."""
    end, pause, tries = time.monotonic() + patience, _FIRST, 0
    while True:
        tries += 1
        try:
            return await _open(url, clock)
        except BadStoreURL as problem:
            raise BadStoreURL(without_password(problem.message)) from None
        except StoreUnavailable as problem:
            if time.monotonic() + pause > end:
                told = without_password(problem.message)
                raise StoreUnavailable(f"{told} (tried {tries} times in {patience:g} seconds)") from None
        await asyncio.sleep(pause)
        pause = min(_LONGEST, 2 * pause)


async def _open(url: URL, clock: Clock | None) -> Link:
    if (url if isinstance(url, str) else "".join(url[:1])).startswith(("nats://", "tls://")):
        try:
            # Imported when asked for: most have no NATS.
            from ackwise.subscriber.feeds.jetstream import NATSLink
        except ImportError:
            raise BadInput(f"{shown(url)} needs nats-py: pip install 'ackwise[nats]'") from None
        return await NATSLink.open(url)
    return BrokerLink(await connect_async(url, clock=clock))


def shown(url: URL) -> str:
    """As it may be told: without passwords."""
    return without_password(url if isinstance(url, str) else ", ".join(url))
