"""Pages of queues and lanes with old rows. A duty continues where its last call stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from ackwise.core.spans import Lane
from ackwise.core.validation import MICROS
from ackwise.engine import catalog
from ackwise.engine.catalog import QueueRow
from ackwise.engine.turn import Turn

LANE_PAGE = 1000
QUEUE_PAGE = 500
"""Queues that one call of a duty reads. It bounds the turn, however many queues exist."""


def queues_with_old_rows(
    turn: Turn, duty: str, old_rows: str, ages: Callable[[QueueRow], list[float]], statement: str = "queues_after"
) -> Iterator[QueueRow]:
    """Queues of one page that may hold old rows. `ages` gives the seconds after which rows of a queue are old.

    The statement `old_rows` checks all queues of the page at once. The next call continues after the last
    queue that the duty finished.
    """
    rows = turn.session.rows(statement, {"after": turn.rounds.get(duty, 0), "limit": QUEUE_PAGE})
    queues = list(map(catalog.queue_from, rows))
    youngest = {queue.id: min(seconds) for queue in queues if (seconds := ages(queue))}
    old: set[int] = set()
    if youngest:
        cutoff = turn.wall - round(min(youngest.values()) * MICROS)
        ids = msgspec.json.encode(list(youngest)).decode()
        old = {row[0] for row in turn.session.rows(old_rows, {"ids": ids, "cutoff": cutoff})}
    for queue in queues:
        if queue.id in old:
            yield queue
        turn.rounds[duty] = queue.id
    if len(rows) < QUEUE_PAGE:
        turn.rounds.pop(duty, None)


def lanes_with_old_rows(turn: Turn, queue: QueueRow, cutoff: int, statement: str = "lanes_with_old") -> Iterator[Lane]:
    """Lanes with old rows, page by page, so that a lane whose rows must stay does not hide the next one."""
    after = 0
    while True:
        where = {"queue": queue.id, "cutoff": cutoff, "after": after, "limit": LANE_PAGE}
        lanes = [Lane(*row) for row in turn.session.rows(statement, where)]
        yield from _lockable(turn, lanes)
        if len(lanes) < LANE_PAGE:
            return
        after = lanes[-1].id


def _lockable(turn: Turn, lanes: list[Lane]) -> list[Lane]:
    """Lock the partitions of lanes. Returns the lanes without those that another turn holds."""
    locked = turn.session.lock_parts(sorted({lane.part for lane in lanes}), skip=True)
    return [lane for lane in lanes if lane.part in locked]
