"""Broker: runs commands in turns (group commit), parks claims as long polls, schedules maintenance, drains."""

from ackwise.broker.async_broker import AsyncBroker
from ackwise.broker.thread_broker import Broker

__all__ = ["AsyncBroker", "Broker"]
