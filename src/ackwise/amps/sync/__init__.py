# Generated from ../aio/__init__.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""The AMPS client for threads, generated from `ackwise.amps.aio`."""

from ackwise.amps.sync.client import Client
from ackwise.amps.sync.subscription import Subscription

__all__ = ["Client", "Subscription"]
