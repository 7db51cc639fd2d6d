"""Pages of the dashboard. Each module has the routes of one page."""

from __future__ import annotations

from ackwise.dashboard.pages import graph, lease_changes, overview, queue, queue_changes, queues, settings

MODULES = (
    overview,
    queues,
    queue,
    queue_changes,
    lease_changes,
    graph,
    settings,
)
