"""Answers queries from the tables. Importing the package registers all of them in `registry`."""

from ackwise.engine.reads import available, groups, leases, messages, newest, queues, traces

__all__ = ["available", "groups", "leases", "messages", "newest", "queues", "traces"]
