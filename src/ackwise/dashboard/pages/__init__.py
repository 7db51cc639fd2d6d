"""Pages of the dashboard. Each module has the routes of one page."""

from __future__ import annotations

from ackwise.dashboard.pages import (
    consumers,
    dead_letter_changes,
    dead_letters,
    group_changes,
    groups,
    names,
    overview,
    push,
    settings,
)

MODULES = (
    overview,
    settings,
    push,
    dead_letter_changes,
    dead_letters,
    group_changes,
    groups,
    consumers,
    names,
)
