"""The typed API: the same verbs for asyncio and for threads, over anything that carries commands to a broker."""

from ackwise.client.aio import AsyncBatch, AsyncConnection, AsyncDelivery, AsyncTransaction
from ackwise.client.payloads import Item
from ackwise.client.sync import Batch, Connection, Delivery, Transaction

__all__ = [
    "AsyncBatch",
    "AsyncConnection",
    "AsyncDelivery",
    "AsyncTransaction",
    "Batch",
    "Connection",
    "Delivery",
    "Item",
    "Transaction",
]
