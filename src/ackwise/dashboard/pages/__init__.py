"""Pages of the dashboard. Each module has the routes of one page."""

from __future__ import annotations

from ackwise.dashboard.pages import consumers, group_changes, groups, names, overview, push, settings

MODULES = (
    overview,
    settings,
    group_changes,
    groups,
    consumers,
    push,
    names,
)
