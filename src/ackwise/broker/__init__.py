"""The one object everybody calls: turns (group commit), long-poll waiters, duties, drain."""

from ackwise.broker.loop import AsyncBroker
from ackwise.broker.threads import Broker

__all__ = ["AsyncBroker", "Broker"]
