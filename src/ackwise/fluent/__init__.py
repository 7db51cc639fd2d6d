"""The fluent client: `client.queue("orders").group("mail").batch(100).consume(handle)`, for users of Queen."""

from ackwise.client.breaking import Resilience
from ackwise.fluent.aio import AsyncClient
from ackwise.fluent.messages import Message
from ackwise.fluent.partial import Partial
from ackwise.fluent.sync import Client

__all__ = ["AsyncClient", "Client", "Message", "Partial", "Resilience"]
