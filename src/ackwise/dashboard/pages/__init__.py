"""Pages of the dashboard. Each module has the routes of one page."""

from __future__ import annotations

from ackwise.dashboard.pages import (
    consumers,
    dead_letter_changes,
    dead_letters,
    graph,
    group_changes,
    groups,
    lease_changes,
    message,
    messages,
    names,
    overview,
    pipelines,
    push,
    queue,
    queue_changes,
    queues,
    settings,
)

MODULES = (
    overview,
    pipelines,
    queues,
    queue,
    queue_changes,
    lease_changes,
    graph,
    settings,
    push,
    messages,
    message,
    dead_letter_changes,
    dead_letters,
    group_changes,
    groups,
    consumers,
    names,
)
