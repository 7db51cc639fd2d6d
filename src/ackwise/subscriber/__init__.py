"""Handlers by decoration: the type of a handler's parameter decides who settles its messages."""

from ackwise.subscriber.app import App
from ackwise.subscriber.depends import Depends
from ackwise.subscriber.message import Message
from ackwise.subscriber.outcomes import Nak, Term
from ackwise.subscriber.policies import AckPolicy
from ackwise.subscriber.publishing import Publisher
from ackwise.subscriber.routing import Router
from ackwise.subscriber.testing import TestApp

__all__ = ["AckPolicy", "App", "Depends", "Message", "Nak", "Publisher", "Router", "Term", "TestApp"]
