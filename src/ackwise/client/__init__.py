"""Client API: connections, batches, deliveries and transactions, for asyncio and for threads."""

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
