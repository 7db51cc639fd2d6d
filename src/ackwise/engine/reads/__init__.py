"""Answers queries from the tables. Importing the package registers all of them in `registry`."""

from ackwise.engine.reads import available, dead_letters, groups, leases, messages, newest, previews, queues, traces

__all__ = ["available", "dead_letters", "groups", "leases", "messages", "newest", "previews", "queues", "traces"]
