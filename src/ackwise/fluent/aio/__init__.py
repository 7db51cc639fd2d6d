"""The fluent client for asyncio. This is the source; `ackwise.fluent.sync` is generated from it."""

from ackwise.fluent.aio.client import AsyncClient
from ackwise.fluent.aio.consumer import AsyncConsumer
from ackwise.fluent.aio.queue import AsyncQueue
from ackwise.fluent.aio.transaction import AsyncFluentTransaction

__all__ = ["AsyncClient", "AsyncConsumer", "AsyncFluentTransaction", "AsyncQueue"]
