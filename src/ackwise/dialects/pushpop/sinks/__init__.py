"""Sinks: a queue's items are posted to a URL, held under locks until the receiver has answered."""

from ackwise.dialects.pushpop.sinks.running import Sinks

__all__ = ["Sinks"]
