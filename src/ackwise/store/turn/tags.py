"""Queues of a namespace or task, as a claim visits them: only those with something to say."""

from __future__ import annotations

from collections.abc import Iterator

from ackwise.core.commands import Claim
from ackwise.store.session import Row
from ackwise.store.turn import catalog
from ackwise.store.turn.catalog import QueueRow
from ackwise.store.turn.context import Turn

CHUNK = 100
"""Queues in which one round of a claim makes its group."""
FEW = 16
"""Queues that a claim reads first. The first of them has a message for most claims."""
ALL = 1 << 62


def join(turn: Turn, command: Claim, *, every: bool) -> bool:
    """Make the group in queues that do not have it: `every` one, or only those that hold messages.

    True if there may be more of them.
    """
    rows = _rows(turn, command, "unjoined", {"all": int(every), "limit": CHUNK})
    for row in rows:
        catalog.ensure_group(turn, catalog.queue_from(row), command.group, command.start)
    return len(rows) == CHUNK


def astir(turn: Turn, command: Claim, seen: set[int]) -> Iterator[QueueRow]:
    """Queues in which the group has something ready or in hand, longest ready first, without those `seen`."""
    for limit in (FEW, ALL):
        rows = _rows(turn, command, "astir", {"key": command.key, "limit": limit})
        for row in rows:
            if row[0] not in seen:
                seen.add(row[0])
                yield catalog.queue_from(row)
        if len(rows) < limit:
            return


def _rows(turn: Turn, command: Claim, which: str, more: dict[str, object]) -> list[Row]:
    where = {**more, "grp": command.group, "task": command.task}
    if command.namespace is None:
        return turn.session.rows(f"{which}_of_task", where)
    return turn.session.rows(f"{which}_of_ns", {**where, "ns": command.namespace})
