"""Fluent client for Queen MQ users: `client.queue("orders").group("mail").batch(100).consume(handle)`."""

from ackwise.client.resilience import Resilience
from ackwise.fluent.aio import AsyncClient
from ackwise.fluent.messages import Message
from ackwise.fluent.outcomes import Partial
from ackwise.fluent.sync import Client

__all__ = ["AsyncClient", "Client", "Message", "Partial", "Resilience"]
