"""Pages of the dashboard. Each module has the routes of one page."""

from __future__ import annotations

from ackwise.dashboard.pages import graph, overview, settings

MODULES = (
    overview,
    graph,
    settings,
)
