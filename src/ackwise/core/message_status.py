"""Queen's status of a message: one word for its states in all groups."""

from __future__ import annotations

from collections.abc import Sequence

from ackwise.core.messages import QUEUE_MODE
from ackwise.core.rows import GroupView

STATUSES = ("pending", "processing", "completed", "dead_letter")
PASSED = ("acked", "dead", "dropped", "skipped")
"""States of a message that its group has finished."""


def deadline_of(view: GroupView, now: int) -> int | None:
    """Deadline of the lease that holds the message. None if no lease holds it or the lease has expired."""
    return view.deadline if view.deadline is not None and view.deadline > now else None


def group_status(view: GroupView, now: int) -> str:
    """Status of the message in one group."""
    if view.state == "dropped":
        return "dropped"
    if view.state in PASSED:
        return "completed"
    return "processing" if deadline_of(view, now) is not None else "pending"


def message_status(views: Sequence[GroupView], now: int, *, dead: bool) -> str:
    """Status by upstream's rule. A dead letter decides first, then queue mode, then all named groups together.

    A message that a group dropped is `dropped`. Upstream shows such a message as `completed`.
    """
    if dead:
        return "dead_letter"
    queue_mode = next((view for view in views if view.group == QUEUE_MODE), None)
    if queue_mode is not None:
        return group_status(queue_mode, now)
    if not views or any(view.state not in PASSED for view in views):
        return "pending"
    return "dropped" if any(view.state == "dropped" for view in views) else "completed"
