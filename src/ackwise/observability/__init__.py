"""Logs and metrics, made from the events in `ackwise.core.events` and from queries."""
