"""Removal of deleted queues, in chunks that are bounded in rows and in time."""

from __future__ import annotations

from ackwise.engine import traces
from ackwise.engine.segment import to_end
from ackwise.engine.turn import Turn

SLICE = 500
"""Rows that one statement removes."""
SECONDS = 0.01
"""Seconds that a turn removes rows before other commands get the writer."""
_QUEUES = 10


class Budget:
    """Rows and seconds that are left of one turn."""

    def __init__(self, turn: Turn, limit: int) -> None:
        self._timer, self._end = turn.timer, turn.timer() + SECONDS
        self._limit, self.removed = limit, 0

    @property
    def slice(self) -> int:
        """Rows that the next statement may remove. 0 ends the turn. The first statement always runs."""
        if self.removed and self._timer() >= self._end:
            return 0
        return max(0, min(SLICE, self._limit - self.removed))


def purge(turn: Turn, limit: int) -> int:
    """Remove rows of deleted queues and return their number. `turn.rounds` says whether rows are left.

    Lanes and partitions go first, each under its lock: afterwards no turn of another broker can add to the queue.
    A partition that another turn still holds ends the chunk.
    """
    budget = Budget(turn, limit)
    turn.rounds["purge"] = 1
    for (queue,) in turn.session.rows("queues_buried", {"limit": _QUEUES}):
        if not (_lanes(turn, queue, budget) and _parts(turn, queue, budget)):
            return budget.removed
        for verb in ("purge_dead", "purge_scheduled", "purge_groups"):
            if not _rows(turn, verb, {"queue": queue}, budget):
                return budget.removed
        if not _traces(turn, queue, budget):
            return budget.removed
        budget.removed += turn.session.run("hooks_remove", {"queue": queue})
        budget.removed += turn.session.run("queue_remove", {"id": queue})
    if not turn.session.rows("queues_buried", {"limit": 1}):
        turn.rounds.pop("purge", None)  # another shard may have finished the duty
    return budget.removed


def _rows(turn: Turn, verb: str, where: dict[str, int], budget: Budget) -> bool:
    """Remove rows slice by slice. Returns False if the budget ended first."""
    while size := budget.slice:
        count = turn.session.run(verb, {**where, "limit": size})
        budget.removed += count
        if count < size:
            return True
    return False


def _traces(turn: Turn, queue: int, budget: Budget) -> bool:
    while size := budget.slice:
        rows = turn.session.rows("traces_of_queue", {"queue": queue, "limit": size})
        budget.removed += traces.delete(turn, rows)
        if len(rows) < size:
            return True
    return False


def _lanes(turn: Turn, queue: int, budget: Budget) -> bool:
    while budget.slice:
        row = turn.session.row("purge_lane_next", {"queue": queue})
        if row is None:
            return True
        lane, part = row
        if not turn.session.lock_parts([part], skip=True):
            return False
        stored = to_end(lane, 0)
        if not (_rows(turn, "purge_segments", stored, budget) and _rows(turn, "purge_husks", stored, budget)):
            return False
        if not all(_rows(turn, verb, {"lane": lane}, budget) for verb in ("purge_spans", "purge_dropped")):
            return False
        for verb in ("purge_cursors", "purge_lane"):
            budget.removed += turn.session.run(verb, {"lane": lane})
    return False


def _parts(turn: Turn, queue: int, budget: Budget) -> bool:
    while size := budget.slice:
        parts = [row[0] for row in turn.session.rows("purge_parts_next", {"queue": queue, "limit": size})]
        free = turn.session.lock_parts(sorted(parts), skip=True)
        budget.removed += turn.session.many("purge_part", [{"part": part} for part in sorted(free)])
        if len(free) < len(parts):
            return False
        if len(parts) < size:
            return True
    return False
