"""Sinks: post a queue's items to a URL and hold them under locks until the receiver answers."""

from ackwise.protocols.pushpop.sinks.supervisor import Sinks

__all__ = ["Sinks"]
