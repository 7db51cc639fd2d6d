"""Answers queries from the tables. Importing the package registers all of them in `registry`."""

from ackwise.engine.reads import (
    available,
    browse_newest,
    dead_letters,
    groups,
    leases,
    messages,
    newest,
    previews,
    queues,
    timeline,
    traces,
)

__all__ = [
    "available",
    "browse_newest",
    "dead_letters",
    "groups",
    "leases",
    "messages",
    "newest",
    "previews",
    "queues",
    "timeline",
    "traces",
]
