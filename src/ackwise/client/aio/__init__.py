"""The client for asyncio. This is the source; `ackwise.client.sync` is generated from it."""

from ackwise.client.aio.batch import AsyncBatch
from ackwise.client.aio.connection import AsyncConnection
from ackwise.client.aio.delivery import AsyncDelivery
from ackwise.client.aio.transaction import AsyncTransaction

__all__ = ["AsyncBatch", "AsyncConnection", "AsyncDelivery", "AsyncTransaction"]
