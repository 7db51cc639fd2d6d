"""AMPS protocol over TCP: publish, subscribe to queues and topics, acknowledge by bookmark."""

from ackwise.protocols.amps.server_state import Admit, AmpsService

__all__ = ["Admit", "AmpsService"]
