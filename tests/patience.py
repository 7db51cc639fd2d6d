"""How long tests wait for an event."""

PATIENCE = 100.0
"""Seconds until a test gives up waiting for an event that must come: long, for a busy machine may be slow.

Shorter than the limit that pytest sets each test, so that the failure names the event.
"""
