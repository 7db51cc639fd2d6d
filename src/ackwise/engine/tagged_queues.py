"""Queues of a namespace or task that a claim visits: those with messages for its group."""

from __future__ import annotations

from collections.abc import Iterator

from ackwise.core.commands import Claim
from ackwise.engine import catalog
from ackwise.engine.catalog import QueueRow
from ackwise.engine.ports import Row
from ackwise.engine.turn import Turn

MOST_JOINED = 100
"""Queues in which all claims of one turn together create their groups."""
MOST_FRUITLESS = 100
"""Queues that all claims of one turn together visit without finding a message."""
FEW = 16
"""Queues that a claim reads first. The first of them has a message for most claims."""


class TagBudget:
    """Budget of claims by namespace or task for the rest of their turn. They share one budget."""

    def __init__(self) -> None:
        self.joins = MOST_JOINED
        self.visits = MOST_FRUITLESS


def join(turn: Turn, command: Claim, since: int, after: str, *, every: bool) -> tuple[list[QueueRow], bool]:
    """Create the group in queues after `after` that lack it: in `every` one, or only in those that hold messages.

    Returns the joined queues, and whether more queues may lack the group.
    """
    budget = turn.state(TagBudget)
    limit = max(1, budget.joins)
    rows = _rows(turn, command, "unjoined", {"all": int(every), "after": after, "limit": limit})
    if not budget.joins:
        return [], bool(rows)
    queues = [catalog.queue_from(row) for row in rows]
    for queue in queues:
        catalog.ensure_group(turn, queue, command.group, command.start, since=since)
    budget.joins -= len(queues)
    return queues, len(queues) == limit


def queues_with_key(turn: Turn, command: Claim) -> list[QueueRow]:
    """Queues in which the group used the claim's key."""
    return [catalog.queue_from(row) for row in _rows(turn, command, "keyed", {"key": command.key})]


def longest_ready(turn: Turn, command: Claim) -> Iterator[QueueRow | None]:
    """Queues in which the group has ready or leased messages, longest ready first. None at the end: there are more."""
    seen: set[int] = set()
    for limit in (FEW, FEW + MOST_FRUITLESS):
        rows = _rows(turn, command, "astir", {"limit": limit})
        for row in rows:
            if row[0] not in seen:
                seen.add(row[0])
                yield catalog.queue_from(row)
        if len(rows) < limit:
            return
    yield None


def by_name(turn: Turn, command: Claim, after: str) -> Iterator[QueueRow | None]:
    """Queues after a name in which the group has ready or leased messages. None at the end: there are more."""
    rows = _rows(turn, command, "astir_behind", {"after": after, "limit": MOST_FRUITLESS})
    yield from map(catalog.queue_from, rows)
    if len(rows) == MOST_FRUITLESS:
        yield None


def _rows(turn: Turn, command: Claim, which: str, more: dict[str, object]) -> list[Row]:
    where = {**more, "grp": command.group, "task": command.task}
    if command.namespace is None:
        return turn.session.rows(f"{which}_of_task", where)
    return turn.session.rows(f"{which}_of_ns", {**where, "ns": command.namespace})
