# Generated from ../aio/__init__.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""The client for threads, generated from `ackwise.client.aio`."""

from ackwise.client.sync.batch import Batch
from ackwise.client.sync.connection import Connection
from ackwise.client.sync.delivery import Delivery
from ackwise.client.sync.transaction import Transaction

__all__ = ["Batch", "Connection", "Delivery", "Transaction"]
