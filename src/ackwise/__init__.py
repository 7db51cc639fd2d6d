"""Ackwise: a durable message queue in which every delivery ends in exactly one settlement."""

from ackwise import old_paths
from ackwise.client import AsyncConnection, Batch, Connection, Delivery
from ackwise.client.payloads import Item
from ackwise.connect import connect, connect_async
from ackwise.core import errors, events
from ackwise.core.policy import Backoff, QueuePolicy
from ackwise.core.settlement import Reject, Retry

__all__ = [
    "AsyncConnection",
    "Backoff",
    "Batch",
    "Connection",
    "Delivery",
    "Item",
    "QueuePolicy",
    "Reject",
    "Retry",
    "connect",
    "connect_async",
    "errors",
    "events",
]

old_paths.install()
