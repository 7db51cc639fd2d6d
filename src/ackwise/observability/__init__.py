"""Logs, metrics and traces, made from the events in `ackwise.core.events`. The package is reserved and empty."""
