# Generated from ../aio/__init__.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""The fluent client for threads, generated from `ackwise.fluent.aio`."""

from ackwise.fluent.sync.client import Client
from ackwise.fluent.sync.consumer import Consumer
from ackwise.fluent.sync.queue import Queue
from ackwise.fluent.sync.transaction import FluentTransaction

__all__ = ["Client", "Consumer", "FluentTransaction", "Queue"]
