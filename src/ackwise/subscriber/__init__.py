"""Subscriber apps: handlers by decoration.

The type of a handler's parameter decides whether the app or the handler settles a message.
"""

from ackwise.subscriber.app import App
from ackwise.subscriber.message import Message, Nak, Term
from ackwise.subscriber.publisher import Publisher
from ackwise.subscriber.router import Router
from ackwise.subscriber.signatures import Depends
from ackwise.subscriber.subscription import AckPolicy
from ackwise.subscriber.testing import TestApp

__all__ = ["AckPolicy", "App", "Depends", "Message", "Nak", "Publisher", "Router", "Term", "TestApp"]
