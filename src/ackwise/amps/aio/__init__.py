"""The AMPS client for asyncio. This is the source; `ackwise.amps.sync` is generated from it."""

from ackwise.amps.aio.client import AsyncClient
from ackwise.amps.aio.subscription import AsyncSubscription

__all__ = ["AsyncClient", "AsyncSubscription"]
