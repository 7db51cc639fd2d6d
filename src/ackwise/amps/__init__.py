"""A client for AMPS-style queues, with auto-ack batching: `Client` for threads, `AsyncClient` for asyncio.

Usage::

    from ackwise.amps import Client

    client = Client("billing").connect("tcp://127.0.0.1:9007/amps/json").logon()
    client.set_auto_ack(True).set_ack_batch_size(50).set_ack_timeout(0.5)
    client.subscribe("queue://orders", handle)
"""

from ackwise.amps.aio import AsyncClient, AsyncSubscription
from ackwise.amps.message import CommandFailed, Disconnected, Message, NoAnswer
from ackwise.amps.sync import Client, Subscription

__all__ = [
    "AsyncClient",
    "AsyncSubscription",
    "Client",
    "CommandFailed",
    "Disconnected",
    "Message",
    "NoAnswer",
    "Subscription",
]
