"""Moving a group to another place."""

from __future__ import annotations

from ackwise.core import limits
from ackwise.core.commands import SeekGroup
from ackwise.core.errors import BadInput
from ackwise.core.spans import Cursor
from ackwise.store.session import Outdated
from ackwise.store.turn import catalog, places
from ackwise.store.turn.context import Turn


def seek(turn: Turn, command: SeekGroup) -> int:
    """Every lane of the group, or of one partition, starts a new epoch; what was held there is held no more."""
    limits.one_of(command.by, "by", ("time", "seq"))
    if isinstance(command.to, str):
        limits.one_of(command.to, "to", ("start", "end"))
    else:
        limits.instant(command.to, "to")
    if command.by == "seq" and (command.partition is None or isinstance(command.to, str)):
        raise BadInput("a seek to a seq names a partition and a number")
    queue = catalog.queue(turn.session, command.queue)
    group = catalog.group(turn.session, queue, command.group)
    if command.partition is not None:
        part = catalog.part_id(turn.session, queue, command.partition)
        rows = turn.session.rows("cursors_of_part", {"part": part, "grp": group.id})
    else:
        rows = turn.session.rows("cursors_of_group", {"grp": group.id})
    turn.session.lock_parts(sorted({row[2] for row in rows}))
    policy = group.policy.over(queue.policy)
    for row in rows:
        cursor = turn.cursor(row[0], group.id)
        if cursor is None:
            raise Outdated(f"group {group.name!r} was deleted meanwhile")
        places.move_cursor(turn, cursor, _target(turn, command, cursor), policy, queue.name)
    return len(rows)


def _target(turn: Turn, command: SeekGroup, cursor: Cursor) -> int:
    match command.to:
        case "start":
            return cursor.start
        case "end":
            return cursor.head
        case number if command.by == "seq":
            return number
        case instant:
            return places.seq_at(turn.session, cursor.lane, cursor.start, cursor.head, instant)
